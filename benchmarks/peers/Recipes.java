// Curator's recipes under measurement.
//
// usage: java Recipes HOSTS TASK PATH SECONDS
// Says `ready`, waits for a line, and then says `result VALUE`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class Recipes {
    interface Once { void run() throws Exception; }

    static CuratorFramework session(String hosts) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            hosts, 30000, 15000, new ExponentialBackoffRetry(100, 10));
        client.start();
        client.blockUntilConnected();
        return client;
    }

    static void say(String words) {
        System.out.println(words);
        System.out.flush();
    }

    static void ready() throws Exception {
        say("ready");
        new BufferedReader(new InputStreamReader(System.in)).readLine();
    }

    static double seconds(long since) {
        return (System.nanoTime() - since) / 1e9;
    }

    static double rate(Once once, double limit) throws Exception {
        for (int i = 0; i < 300; i++) once.run();  // until it is compiled
        ready();
        long began = System.nanoTime();
        int count = 0;
        while (seconds(began) < limit) {
            once.run();
            count++;
        }
        return count / seconds(began);
    }

    static double cycles(CuratorFramework client, String task, String path, double limit)
            throws Exception {
        InterProcessMutex lock = new InterProcessMutex(client, path);
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path + "-s", 1);
        SimpleDistributedQueue queue = new SimpleDistributedQueue(client, path);
        DistributedAtomicLong counter = new DistributedAtomicLong(
            client, path + "-counter", new ExponentialBackoffRetry(100, 10));
        switch (task) {
            case "semaphore":
                return rate(() -> {
                    Lease lease = semaphore.acquire();
                    semaphore.returnLease(lease);
                }, limit);
            case "queue":
                return rate(() -> { queue.offer(new byte[1]); queue.poll(); }, limit);
            case "counter":
                return rate(() -> counter.increment(), limit);
            default:
                return rate(() -> { lock.acquire(); lock.release(); }, limit);
        }
    }

    static double holds(CuratorFramework client, String path, double limit) throws Exception {
        InterProcessMutex lock = new InterProcessMutex(client, path);
        lock.acquire();
        lock.release();
        ready();
        long began = System.nanoTime();
        int count = 0;
        while (seconds(began) < limit) {
            lock.acquire();
            lock.release();
            count++;
        }
        return count / seconds(began);
    }

    static double rounds(CuratorFramework client, String hosts, String path, double limit)
            throws Exception {
        AtomicInteger count = new AtomicInteger();
        CuratorFramework other = session(hosts);
        ready();
        long began = System.nanoTime();
        for (CuratorFramework each : new CuratorFramework[] {client, other}) {
            Thread thread = new Thread(() -> {
                try {
                    while (true) {
                        DistributedDoubleBarrier barrier =
                            new DistributedDoubleBarrier(each, path, 2);
                        barrier.enter();
                        barrier.leave();
                        if (each == client) count.incrementAndGet();
                    }
                } catch (Exception error) {
                    error.printStackTrace();
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        Thread.sleep((long) (limit * 1000));
        return count.get() / seconds(began);
    }

    static double handover(CuratorFramework client, String hosts, String path, int samples)
            throws Exception {
        CuratorFramework other = session(hosts);
        double[] took = new double[samples];
        AtomicLong ledAt = new AtomicLong();
        ready();
        LeaderLatch leading = new LeaderLatch(client, path);
        leading.start();
        leading.await();
        for (int i = 0; i < samples; i++) {
            CountDownLatch led = new CountDownLatch(1);
            LeaderLatch next = new LeaderLatch(i % 2 == 0 ? other : client, path);
            next.addListener(new LeaderLatchListener() {
                public void isLeader() { ledAt.set(System.nanoTime()); led.countDown(); }
                public void notLeader() { }
            });
            next.start();
            Thread.sleep(50);
            long freeAt = System.nanoTime();
            leading.close();
            led.await();
            took[i] = (ledAt.get() - freeAt) / 1e6;
            leading = next;
        }
        leading.close();
        Arrays.sort(took);
        return took[samples / 2];
    }

    static double crowd(CuratorFramework client, String path, int count, boolean areElections)
            throws Exception {
        client.createContainers(path);
        ready();
        long began = System.nanoTime();
        CountDownLatch led = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            if (areElections) {
                LeaderLatch latch = new LeaderLatch(client, path + "/" + i);
                latch.addListener(new LeaderLatchListener() {
                    public void isLeader() { led.countDown(); }
                    public void notLeader() { }
                });
                latch.start();
            } else {
                InterProcessMutex lock = new InterProcessMutex(client, path);
                Thread thread = new Thread(() -> {
                    try {
                        lock.acquire();
                        Thread.sleep(Long.MAX_VALUE);
                    } catch (Exception error) {
                        error.printStackTrace();
                    }
                });
                thread.setDaemon(true);
                thread.start();
            }
        }
        if (areElections) {
            led.await();
        } else {
            while (client.checkExists().forPath(path).getNumChildren() < count) Thread.sleep(20);
        }
        double result = seconds(began);
        say("threads " + Thread.activeCount());
        return result;
    }

    static double far(CuratorFramework client, String path, int samples) throws Exception {
        client.createContainers(path);
        ready();
        double[] took = new double[samples];
        for (int i = 0; i < samples; i++) {
            InterProcessMutex lock = new InterProcessMutex(client, path);
            long began = System.nanoTime();
            lock.acquire();
            took[i] = seconds(began) * 1000;
            lock.release();
            Thread.sleep(200);
        }
        Arrays.sort(took);
        return took[samples / 2];
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = session(args[0]);
        String task = args[1], path = args[2];
        double amount = Double.parseDouble(args[3]), result;
        switch (task) {
            case "holds": result = holds(client, path, amount); break;
            case "barrier": result = rounds(client, args[0], path, amount); break;
            case "handover": result = handover(client, args[0], path, (int) amount); break;
            case "elections": result = crowd(client, path, (int) amount, true); break;
            case "contenders": result = crowd(client, path, (int) amount, false); break;
            case "far": result = far(client, path, (int) amount); break;
            default: result = cycles(client, task, path, amount);
        }
        say("result " + result);
        Runtime.getRuntime().halt(0);
    }
}
