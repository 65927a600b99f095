import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;

/** Apache Curator's recipes, two clients, a line for each thing that happens. */
public class Recipes {
    static CuratorFramework one;
    static CuratorFramework two;

    static void say(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(line.length() == 0 ? "" : " ").append(word);
        }
        System.out.println(line);
    }

    static CuratorFramework connected(String hosts) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder().connectString(hosts)
            .namespace("curator")
            .sessionTimeoutMs(10000).connectionTimeoutMs(10000)
            .retryPolicy(new RetryNTimes(3, 100)).build();
        client.start();
        if (!client.blockUntilConnected(15, TimeUnit.SECONDS)) {
            throw new AssertionError("not connected");
        }
        return client;
    }

    static void until(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                say("waited in vain for", what);
                System.exit(1);
            }
            Thread.sleep(5);
        }
        say(what);
    }

    static List<String> sequences(String path) throws Exception {
        List<String> ends = new ArrayList<>();
        for (String name : new TreeSet<>(one.getChildren().forPath(path))) {
            ends.add(name.replaceAll("_c_[-0-9a-f]+-", ""));
        }
        ends.sort(null);
        return ends;
    }

    static void verbs() throws Exception {
        say("create", one.create().creatingParentsIfNeeded().forPath("/v/a/b", "x".getBytes()));
        say("protected", one.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL)
            .forPath("/v/p-").replaceAll("_c_[-0-9a-f]+-", ""));
        say("containers", one.create().creatingParentContainersIfNeeded().forPath("/v/c/d/e"));
        say("data", new String(one.getData().forPath("/v/a/b"), StandardCharsets.UTF_8));
        say("version", one.setData().withVersion(0).forPath("/v/a/b", "y".getBytes()).getVersion());
        try {
            one.setData().withVersion(0).forPath("/v/a/b", "z".getBytes());
        } catch (KeeperException refused) {
            say("refused", refused.code());
        }
        for (CuratorTransactionResult result : one.transaction().forOperations(
                one.transactionOp().create().forPath("/v/t", "1".getBytes()),
                one.transactionOp().setData().forPath("/v/t", "2".getBytes()),
                one.transactionOp().check().withVersion(1).forPath("/v/t"),
                one.transactionOp().delete().forPath("/v/t"))) {
            say("transaction", result.getType(), result.getResultPath(), result.getForPath());
        }
        try {
            one.transaction().forOperations(one.transactionOp().create().forPath("/v/u"),
                one.transactionOp().delete().forPath("/v/none"));
        } catch (KeeperException refused) {
            say("refused", refused.code(), refused.getResults().size());
        }
        say("exists", one.checkExists().forPath("/v/u"));
        one.delete().guaranteed().deletingChildrenIfNeeded().forPath("/v");
        say("exists", one.checkExists().forPath("/v"));
    }

    static void leaderLatch() throws Exception {
        LeaderLatch first = new LeaderLatch(one, "/latch", "first");
        LeaderLatch second = new LeaderLatch(two, "/latch", "second");
        first.start();
        until("first leads", first::hasLeadership);
        second.start();
        until("two candidates", () -> first.getParticipants().size() == 2);
        say("leader", second.getLeader().getId(), second.hasLeadership(), sequences("/latch"));
        first.close();
        until("second leads", second::hasLeadership);
        second.close();
    }

    static void mutex() throws Exception {
        InterProcessMutex first = new InterProcessMutex(one, "/mutex");
        InterProcessMutex second = new InterProcessMutex(two, "/mutex");
        say("first acquires", first.acquire(10, TimeUnit.SECONDS));
        say("first again", first.acquire(10, TimeUnit.SECONDS));
        say("second acquires", second.acquire(100, TimeUnit.MILLISECONDS));
        say("participants", first.getParticipantNodes().size(), sequences("/mutex"));
        first.release();
        say("held still", first.isAcquiredInThisProcess());
        first.release();
        say("second acquires", second.acquire(10, TimeUnit.SECONDS), sequences("/mutex"));
        second.release();
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(one, "/rw");
        InterProcessReadWriteLock other = new InterProcessReadWriteLock(two, "/rw");
        say("read", both.readLock().acquire(10, TimeUnit.SECONDS));
        say("read by other", other.readLock().acquire(10, TimeUnit.SECONDS));
        say("write by other", new InterProcessReadWriteLock(two, "/rw").writeLock()
            .acquire(100, TimeUnit.MILLISECONDS));
        both.readLock().release();
        other.readLock().release();
        say("write", other.writeLock().acquire(10, TimeUnit.SECONDS));
        other.writeLock().release();
    }

    static void semaphore() throws Exception {
        InterProcessSemaphoreV2 first = new InterProcessSemaphoreV2(one, "/semaphore", 2);
        InterProcessSemaphoreV2 second = new InterProcessSemaphoreV2(two, "/semaphore", 2);
        Lease a = first.acquire(10, TimeUnit.SECONDS);
        Lease b = second.acquire(10, TimeUnit.SECONDS);
        say("two leases", a != null, b != null);
        say("a third", first.acquire(100, TimeUnit.MILLISECONDS));
        second.returnLease(b);
        Lease c = first.acquire(10, TimeUnit.SECONDS);
        say("after one is back", c != null, first.getParticipantNodes().size());
        first.returnLease(a);
        first.returnLease(c);
    }

    static void persistentNode() throws Exception {
        PersistentNode node =
            new PersistentNode(one, CreateMode.EPHEMERAL, false, "/node/mine", "x".getBytes());
        node.start();
        say("created", node.waitForInitialCreate(10, TimeUnit.SECONDS), node.getActualPath());
        two.delete().forPath("/node/mine");
        until("made again", () -> two.checkExists().forPath("/node/mine") != null);
        node.setData("y".getBytes());
        until("set", () -> new String(two.getData().forPath("/node/mine")).equals("y"));
        say("owner", two.checkExists().forPath("/node/mine").getEphemeralOwner()
            == one.getZookeeperClient().getZooKeeper().getSessionId());
        node.close();
        say("closed", two.checkExists().forPath("/node/mine"));
    }

    static void cache() throws Exception {
        one.create().creatingParentsIfNeeded().forPath("/cache/a", "1".getBytes());
        List<String> seen = java.util.Collections.synchronizedList(new ArrayList<>());
        CuratorCache cache = CuratorCache.build(one, "/cache");
        cache.listenable().addListener(CuratorCacheListener.builder()
            .forCreates(node -> seen.add("created " + node.getPath()))
            .forChanges((before, after) -> seen.add("changed " + after.getPath() + " "
                + new String(before.getData()) + " " + new String(after.getData())))
            .forDeletes(node -> seen.add("deleted " + node.getPath()))
            .forInitialized(() -> seen.add("initialized")).build());
        cache.start();
        until("cache is there", () -> seen.contains("initialized"));
        two.create().forPath("/cache/b", "2".getBytes());
        until("created", () -> seen.contains("created /cache/b"));
        two.setData().forPath("/cache/b", "3".getBytes());
        until("changed", () -> seen.contains("changed /cache/b 2 3"));
        two.create().creatingParentsIfNeeded().forPath("/cache/deep/er/est", "4".getBytes());
        until("created below", () -> seen.contains("created /cache/deep/er/est"));
        two.delete().deletingChildrenIfNeeded().forPath("/cache/deep");
        until("deleted", () -> seen.contains("deleted /cache/deep"));
        two.delete().forPath("/cache/b");
        until("deleted", () -> seen.contains("deleted /cache/b"));
        say("seen", new TreeSet<>(seen), cache.size());
        cache.close();
    }

    static void others() throws Exception {
        DistributedAtomicLong counter =
            new DistributedAtomicLong(one, "/counter", new RetryNTimes(3, 10));
        say("counter", counter.add(5L).postValue(), counter.decrement().postValue());
        SharedCount shared = new SharedCount(one, "/shared", 7);
        SharedCount same = new SharedCount(two, "/shared", 7);
        shared.start();
        same.start();
        shared.setCount(8);
        until("shared count seen", () -> same.getCount() == 8);
        say("stale", same.trySetCount(shared.getVersionedValue(), 9));
        shared.close();
        same.close();
        DistributedBarrier barrier = new DistributedBarrier(one, "/barrier");
        barrier.setBarrier();
        say("barrier", new DistributedBarrier(two, "/barrier").waitOnBarrier(50, TimeUnit.MILLISECONDS));
        barrier.removeBarrier();
        say("barrier", new DistributedBarrier(two, "/barrier").waitOnBarrier(10, TimeUnit.SECONDS));
    }

    public static void main(String[] words) throws Exception {
        one = connected(words[0]);
        two = connected(words[0]);
        verbs();
        leaderLatch();
        mutex();
        semaphore();
        persistentNode();
        cache();
        others();
        for (String name : new TreeSet<>(one.getChildren().forPath("/"))) {
            one.delete().deletingChildrenIfNeeded().forPath("/" + name);
        }
        say("left", one.getChildren().forPath("/"));
        two.close();
        one.close();
        say("done");
        System.exit(0);
    }
}
