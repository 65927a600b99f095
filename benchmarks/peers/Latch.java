// Curator's LeaderLatch: says `leader` when it leads; at SIGTERM `releasing`, and closes it.
//
// usage: java Latch HOSTS PATH NAME SESSION_MILLISECONDS

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class Latch {
    static void say(String word) {
        System.out.println(word);
        System.out.flush();
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            args[0], Integer.parseInt(args[3]), 5000, new ExponentialBackoffRetry(100, 10));
        client.start();
        client.blockUntilConnected();
        LeaderLatch latch = new LeaderLatch(client, args[1], args[2]);
        latch.addListener(new LeaderLatchListener() {
            public void isLeader() { say("leader"); }
            public void notLeader() { }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                say("releasing");
                latch.close();
                client.close();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        latch.start();
        say("standing");
        Thread.sleep(Long.MAX_VALUE);
    }
}
