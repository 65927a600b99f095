import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.retry.RetryNTimes;

/** Curator's locks, told what to do a line at a time; it answers each with one line. */
public class Holder {
    static final Map<String, InterProcessMutex> locks = new HashMap<>();
    static final Map<String, LeaderLatch> latches = new HashMap<>();

    static final Map<String, GroupMember> members = new HashMap<>();

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static InterProcessMutex made(CuratorFramework client, String kind, String path) {
        switch (kind) {
            case "mutex":
                return new InterProcessMutex(client, path);
            case "read":
                return new InterProcessReadWriteLock(client, path).readLock();
            default:
                return new InterProcessReadWriteLock(client, path).writeLock();
        }
    }

    static String done(CuratorFramework client, String[] words) throws Exception {
        String name = words.length > 1 ? words[1] : "";
        switch (words[0]) {
            case "mutex":
            case "read":
            case "write":
                locks.put(name, made(client, words[0], words[2]));
                return "made";
            case "acquire":
                return "" + locks.get(name).acquire(Long.parseLong(words[2]), TimeUnit.MILLISECONDS);
            case "release":
                locks.get(name).release();
                return "released";
            case "revocable":
                locks.get(name).makeRevocable(lock -> say("asked " + name));
                return "revocable";
            case "revoke":
                Revoker.attemptRevoke(client, words[1]);
                return "revoked";
            case "latch":
                latches.put(name, new LeaderLatch(client, words[2], name));
                latches.get(name).start();
                return "stands";
            case "leads":
                return "" + latches.get(name).await(Long.parseLong(words[2]), TimeUnit.MILLISECONDS);
            case "join":
                members.put(name, new GroupMember(client, words[2], name, words[3].getBytes()));
                members.get(name).start();
                return "joins";
            case "members":
                Map<String, String> seen = new TreeMap<>();
                members.get(name).getCurrentMembers().forEach((who, data) -> seen.put(who, new String(data)));
                return "" + seen;
            case "quit":
                members.get(name).close();
                return "quit";
            case "ping":
                return "pong";
            case "leader":
                return latches.get(name).getLeader().getId();
            default:
                latches.get(name).close();
                return "closed";
        }
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            args[0], 10000, 10000, new RetryNTimes(3, 100));
        client.start();
        client.blockUntilConnected(15, TimeUnit.SECONDS);
        say("connected");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            say(done(client, line.split(" ")));
        }
        client.close();
        System.exit(0);
    }
}
