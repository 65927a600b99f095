import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;

/**
 * Apache's Java client loses its connection, and its server, and sets its watches again.
 *
 * <p>java Watches RELAY DIRECT: one client through a relay, one straight. It prints `cut`, `heal`
 * and `restart` when that is to be done, and goes on once it is told that it was.
 */
public class Watches {
    static final BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    static final List<String> events = Collections.synchronizedList(new ArrayList<>());
    static ZooKeeper far;
    static ZooKeeper near;

    /** A session's states. */
    static class States implements Watcher {
        volatile KeeperState state = KeeperState.Disconnected;

        @Override
        public synchronized void process(WatchedEvent event) {
            if (event.getType() == EventType.None) {
                state = event.getState();
                notifyAll();
            }
        }

        synchronized void until(KeeperState wanted) throws InterruptedException {
            long deadline = System.currentTimeMillis() + 20000;
            while (state != wanted) {
                if (System.currentTimeMillis() > deadline) {
                    System.out.println("waited in vain for " + wanted + ", it is " + state);
                    System.exit(1);
                }
                wait(100);
            }
        }
    }

    static Watcher named(String name) {
        return event -> {
            if (event.getType() != EventType.None) {
                events.add(name + " " + event.getType() + " " + event.getPath());
            }
        };
    }

    static void order(String what) throws Exception {
        System.out.println(what);
        if (in.readLine() == null) {
            System.exit(1);
        }
    }

    /** Everything that the far client was told up to now. */
    static void show(String when) throws Exception {
        CountDownLatch caughtUp = new CountDownLatch(1);
        far.sync("/", (rc, path, context) -> caughtUp.countDown(), null);
        caughtUp.await(20, TimeUnit.SECONDS);
        System.out.println(when);
        List<String> seen = new ArrayList<>(events);
        events.clear();
        Collections.sort(seen);
        for (String event : seen) {
            System.out.println("  " + event);
        }
    }

    static void make(ZooKeeper who, String path, CreateMode mode) throws Exception {
        who.create(path, new byte[0], Ids.OPEN_ACL_UNSAFE, mode);
    }

    static void watchAll() throws Exception {
        for (String path : new String[] {"/j/same", "/j/changed", "/j/gone"}) {
            far.getData(path, named("data"), null);
            far.getChildren(path, named("children"));
        }
        far.exists("/j/none", named("exists"));
        far.exists("/j/later", named("exists"));
    }

    static void change() throws Exception {
        near.setData("/j/changed", "x".getBytes(), -1);
        make(near, "/j/changed/child", CreateMode.PERSISTENT);
        near.delete("/j/gone", -1);
        make(near, "/j/later", CreateMode.PERSISTENT);
        near.setData("/j/lasting", "x".getBytes(), -1);
        make(near, "/j/deep/er", CreateMode.PERSISTENT);
        make(near, "/j/deep/er/est", CreateMode.PERSISTENT);
    }

    static void undo() throws Exception {
        for (String path : new String[] {
            "/j/changed/child", "/j/later", "/j/deep/er/est", "/j/deep/er"}) {
            near.delete(path, -1);
        }
        make(near, "/j/gone", CreateMode.PERSISTENT);
    }

    static void refused(String what, java.util.concurrent.Callable<?> call) throws Exception {
        try {
            call.call();
            System.out.println(what + ": done");
        } catch (KeeperException refused) {
            System.out.println(what + ": " + refused.code());
        }
    }

    public static void main(String[] words) throws Exception {
        States farStates = new States();
        States nearStates = new States();
        far = new ZooKeeper(words[0], 15000, farStates);
        near = new ZooKeeper(words[1], 15000, nearStates);
        farStates.until(KeeperState.SyncConnected);
        nearStates.until(KeeperState.SyncConnected);
        long session = far.getSessionId();
        make(near, "/j", CreateMode.PERSISTENT);
        for (String name : new String[] {"same", "changed", "gone", "lasting", "deep"}) {
            make(near, "/j/" + name, CreateMode.PERSISTENT);
        }
        make(far, "/j/mine", CreateMode.EPHEMERAL);
        far.addWatch("/j/lasting", named("lasting"), AddWatchMode.PERSISTENT);
        far.addWatch("/j/deep", named("deep"), AddWatchMode.PERSISTENT_RECURSIVE);

        watchAll();
        change();
        show("connected");
        undo();
        show("undone");

        watchAll();
        order("cut");
        farStates.until(KeeperState.Disconnected);
        change();
        order("heal");
        farStates.until(KeeperState.SyncConnected);
        show("missed while cut off");
        near.setData("/j/same", "x".getBytes(), -1);
        near.setData("/j/lasting", "y".getBytes(), -1);
        make(near, "/j/deep/down", CreateMode.PERSISTENT);
        show("still watched");
        undo();
        near.delete("/j/deep/down", -1);
        show("undone");

        watchAll();
        order("restart");
        nearStates.until(KeeperState.SyncConnected);
        farStates.until(KeeperState.SyncConnected);
        System.out.println("the same session " + (far.getSessionId() == session) + " "
            + (near.exists("/j/mine", false).getEphemeralOwner() == session));
        show("after a restart");
        change();
        show("watched after a restart");

        Watcher none = named("none");
        refused("remove none", () -> {
            far.removeWatches("/j/lasting", none, Watcher.WatcherType.Data, false);
            return null;
        });
        refused("remove all", () -> {
            far.removeAllWatches("/j/deep", Watcher.WatcherType.Any, false);
            return null;
        });
        make(near, "/j/deep/unseen", CreateMode.PERSISTENT);
        near.setData("/j/lasting", "z".getBytes(), -1);
        show("after removing");
        far.close();
        System.out.println("mine " + near.exists("/j/mine", false));
        near.close();
        System.out.println("done");
        System.exit(0);
    }
}
