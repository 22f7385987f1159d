import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Measures one kind of work and prints one line: mode, count, seconds, rate, cpu_seconds, p50_us, p99_us.
 * The same work is done unmeasured first, in the same JVM, so that the compiler has seen it.
 * Options: --namesrv ADDRESS, --topic TOPIC, --mode awaited|pipelined|batches|consume, --count N, and as wished
 * --size BYTES (128), --warm-up N (20000), --in-flight N (256, pipelined), --batch N (100, batches; the
 * latencies are those of whole batches then), --group GROUP (consume; the topic must hold warm-up + count
 * messages, and has no latencies).
 */
public class Benchmark {
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    /** Sends "count" messages and returns how long each took, in nanoseconds. */
    interface Sends {
        long[] send(DefaultMQProducer producer, Message message, int count) throws Exception;
    }

    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        String mode = options.get("mode");
        Terminal.run(() -> {
            switch (mode) {
                case "awaited" -> produce(options, Benchmark::awaited);
                case "pipelined" -> {
                    int inFlight = number(options, "in-flight", 256);
                    produce(options, (producer, message, count) -> pipelined(producer, message, count, inFlight));
                }
                case "batches" -> {
                    int size = number(options, "batch", 100);
                    produce(options, (producer, message, count) -> batches(producer, message, count, size));
                }
                case "consume" -> consume(options);
                default -> throw new IllegalArgumentException("no mode " + mode);
            }
        });
    }

    private static int number(Map<String, String> options, String name, int otherwise) {
        return Integer.parseInt(options.getOrDefault(name, Integer.toString(otherwise)));
    }

    private static void produce(Map<String, String> options, Sends sends) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-benchmark");
        producer.setNamesrvAddr(options.get("namesrv"));
        producer.setSendMsgTimeout(30_000);
        producer.start();
        byte[] body = new byte[number(options, "size", 128)];
        Arrays.fill(body, (byte) 'x');
        Message message = new Message(options.get("topic"), body);
        int count = number(options, "count", 20_000);
        sends.send(producer, message, number(options, "warm-up", 20_000));
        long started = System.nanoTime();
        long cpuStarted = SYSTEM.getProcessCpuTime();
        long[] latencies = sends.send(producer, message, count);
        long took = System.nanoTime() - started;
        long cpu = SYSTEM.getProcessCpuTime() - cpuStarted;
        producer.shutdown();
        Arrays.sort(latencies);
        report(options.get("mode"), count, took, cpu, at(latencies, 50), at(latencies, 99));
    }

    private static double at(long[] sorted, int percent) {
        return sorted[(int) ((long) sorted.length * percent / 100)] / 1e3;
    }

    private static void report(String mode, int count, long took, long cpu, Double p50, Double p99) {
        Terminal.print("mode", mode, "count", count, "seconds", took / 1e9, "rate", count / (took / 1e9),
            "cpu_seconds", cpu / 1e9, "p50_us", p50, "p99_us", p99);
    }

    private static long[] awaited(DefaultMQProducer producer, Message message, int count) throws Exception {
        long[] latencies = new long[count];
        for (int i = 0; i < count; i++) {
            long started = System.nanoTime();
            producer.send(copy(message));
            latencies[i] = System.nanoTime() - started;
        }
        return latencies;
    }

    private static long[] pipelined(DefaultMQProducer producer, Message message, int count, int inFlight)
        throws Exception {
        long[] latencies = new long[count];
        Semaphore places = new Semaphore(inFlight);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int i = 0; i < count; i++) {
            places.acquire();
            int number = i;
            long started = System.nanoTime();
            producer.send(copy(message), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    latencies[number] = System.nanoTime() - started;
                    places.release();
                }

                @Override
                public void onException(Throwable error) {
                    failure.set(error);
                    places.release();
                }
            });
        }
        places.acquire(inFlight);
        if (failure.get() != null) {
            throw new Exception("a send failed", failure.get());
        }
        return latencies;
    }

    private static long[] batches(DefaultMQProducer producer, Message message, int count, int size)
        throws Exception {
        List<Long> latencies = new ArrayList<>();
        for (int sent = 0; sent < count; sent += size) {
            List<Message> batch = new ArrayList<>();
            for (int i = sent; i < Math.min(sent + size, count); i++) {
                batch.add(copy(message));
            }
            long started = System.nanoTime();
            producer.send(batch);
            latencies.add(System.nanoTime() - started);
        }
        return latencies.stream().mapToLong(Long::longValue).toArray();
    }

    /** A message of its own for each send: the client writes properties into the one it is given. */
    private static Message copy(Message message) {
        return new Message(message.getTopic(), message.getBody());
    }

    private static void consume(Map<String, String> options) throws Exception {
        int warmUp = number(options, "warm-up", 20_000);
        int count = number(options, "count", 20_000);
        AtomicInteger consumed = new AtomicInteger();
        long[] started = new long[2];
        CountDownLatch warm = new CountDownLatch(1);
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.get("group"));
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.get("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            int now = consumed.addAndGet(messages.size());
            if (now >= warmUp && now - messages.size() < warmUp) {
                started[0] = System.nanoTime();
                started[1] = SYSTEM.getProcessCpuTime();
                warm.countDown();
            }
            if (now >= warmUp + count) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        warm.await();
        done.await();
        long took = System.nanoTime() - started[0];
        long cpu = SYSTEM.getProcessCpuTime() - started[1];
        consumer.shutdown();
        report("consume", count, took, cpu, null, null);
    }
}
