import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.IntConsumer;
import java.util.stream.LongStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Measures one kind of work and prints one line: seconds, cpu_seconds, p50_us, p99_us, peak_bytes.
 * The same work is done unmeasured first, in the same JVM, so that the compiler has seen it.
 * Options: --namesrv ADDRESS, --topic TOPIC, --mode awaited|callers|pipelined|batches|consume|latency|memory,
 * --count N, and optionally --warm-up N (20000), --size BYTES (128), --group GROUP (java-benchmark),
 * --callers N (16), --in-flight N (256, pipelined), --batch N (100, batches; the latencies are those of whole
 * batches then), --list N (1, consume: messages that the listener takes at once; the topic must hold
 * warm-up + count messages), --topics N (memory: TOPIC-0 and so on, which must hold count messages together).
 */
public class Benchmark {
    /** Pipelined, the latency of one of so many messages is taken, as it is by the other programs. */
    private static final int LATENCY_EVERY = 10;

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
                case "callers" -> {
                    int callers = number(options, "callers", 16);
                    produce(options, (producer, message, count) -> callers(producer, message, count, callers));
                }
                case "pipelined" -> {
                    int inFlight = number(options, "in-flight", 256);
                    produce(options, (producer, message, count) -> pipelined(producer, message, count, inFlight));
                }
                case "batches" -> {
                    int size = number(options, "batch", 100);
                    produce(options, (producer, message, count) -> batches(producer, message, count, size));
                }
                case "consume" -> consume(options);
                case "latency" -> latency(options);
                case "memory" -> memory(options);
                default -> throw new IllegalArgumentException("no mode " + mode);
            }
        });
    }

    private static int number(Map<String, String> options, String name, int otherwise) {
        return Integer.parseInt(options.getOrDefault(name, Integer.toString(otherwise)));
    }

    /** Wall time, and the CPU time of this JVM between start and stop. */
    private static final class Stopwatch {
        private final long started = System.nanoTime();
        private final long cpuStarted = SYSTEM.getProcessCpuTime();
        private double seconds;
        private double cpuSeconds;

        void stop() {
            seconds = (System.nanoTime() - started) / 1e9;
            cpuSeconds = (SYSTEM.getProcessCpuTime() - cpuStarted) / 1e9;
        }

        /** Prints the measurements, without latencies if there are none. */
        void report(long... latencies) {
            Arrays.sort(latencies);
            boolean any = latencies.length > 0;
            Terminal.print("seconds", seconds, "cpu_seconds", cpuSeconds,
                "p50_us", any ? at(latencies, 50) : null, "p99_us", any ? at(latencies, 99) : null,
                "peak_bytes", peakBytes());
        }

        private static double at(long[] sorted, int percent) {
            return sorted[(int) ((long) sorted.length * percent / 100)] / 1e3;
        }

        /** The most memory that this JVM had at a time, or null where there is no /proc to tell it. */
        private static Long peakBytes() {
            try {
                for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
                    if (line.startsWith("VmHWM:")) {
                        return Long.parseLong(line.replaceAll("[^0-9]", "")) * 1024;
                    }
                }
            } catch (IOException noSuchPlace) {
                return null;
            }
            return null;
        }
    }

    private static DefaultMQProducer producer(Map<String, String> options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(options.getOrDefault("group", "java-benchmark"));
        producer.setNamesrvAddr(options.get("namesrv"));
        producer.setSendMsgTimeout(30_000);
        producer.start();
        return producer;
    }

    private static Message message(Map<String, String> options) {
        byte[] body = new byte[number(options, "size", 128)];
        Arrays.fill(body, (byte) 'x');
        return new Message(options.get("topic"), body);
    }

    private static void produce(Map<String, String> options, Sends sends) throws Exception {
        DefaultMQProducer producer = producer(options);
        Message message = message(options);
        sends.send(producer, message, number(options, "warm-up", 20_000));
        Stopwatch watch = new Stopwatch();
        long[] latencies = sends.send(producer, message, number(options, "count", 20_000));
        watch.stop();
        producer.shutdown();
        watch.report(latencies);
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

    private static long[] callers(DefaultMQProducer producer, Message message, int count, int callers)
        throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(callers);
        try {
            List<Future<long[]>> shares = new ArrayList<>();
            for (int i = 0; i < callers; i++) {
                int share = (count + i) / callers;
                shares.add(threads.submit(() -> awaited(producer, message, share)));
            }
            LongStream all = LongStream.empty();
            for (Future<long[]> share : shares) {
                all = LongStream.concat(all, Arrays.stream(share.get()));
            }
            return all.toArray();
        } finally {
            threads.shutdown();
        }
    }

    private static long[] pipelined(DefaultMQProducer producer, Message message, int count, int inFlight)
        throws Exception {
        long[] latencies = new long[(count + LATENCY_EVERY - 1) / LATENCY_EVERY];
        Semaphore places = new Semaphore(inFlight);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int i = 0; i < count; i++) {
            places.acquire();
            int number = i;
            long started = number % LATENCY_EVERY == 0 ? System.nanoTime() : 0;
            producer.send(copy(message), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    if (number % LATENCY_EVERY == 0) {
                        latencies[number / LATENCY_EVERY] = System.nanoTime() - started;
                    }
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
            long started = System.nanoTime();
            List<Message> batch = new ArrayList<>();
            for (int i = sent; i < Math.min(sent + size, count); i++) {
                batch.add(copy(message));
            }
            producer.send(batch);
            latencies.add(System.nanoTime() - started);
        }
        return latencies.stream().mapToLong(Long::longValue).toArray();
    }

    /** A message of its own for each send: the client writes properties into the one it is given. */
    private static Message copy(Message message) {
        return new Message(message.getTopic(), message.getBody());
    }

    /** A consumer that has "handle" called with the number of messages of each call of its listener. */
    private static DefaultMQPushConsumer consumer(Map<String, String> options, int list, IntConsumer handle) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.get("group"));
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(list);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            handle.accept(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    /** Consumes a topic's backlog, with a listener that only counts. */
    private static void consume(Map<String, String> options) throws Exception {
        int first = Math.max(1, number(options, "warm-up", 20_000));
        int last = number(options, "warm-up", 20_000) + number(options, "count", 20_000);
        AtomicInteger consumed = new AtomicInteger();
        AtomicReference<Stopwatch> watch = new AtomicReference<>();
        CountDownLatch warm = new CountDownLatch(1);
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer(options, number(options, "list", 1), count -> {
            int now = consumed.addAndGet(count);
            if (now >= first && now - count < first) {
                watch.set(new Stopwatch());
                warm.countDown();
            }
            if (now >= last) {
                done.countDown();
            }
        });
        consumer.subscribe(options.get("topic"), "*");
        consumer.start();
        warm.await();
        done.await();
        watch.get().stop();
        consumer.shutdown();
        watch.get().report();
    }

    /** Sends a message when the one before has been handled; measures from there to the listener. */
    private static void latency(Map<String, String> options) throws Exception {
        int warmUp = number(options, "warm-up", 20_000);
        long[] latencies = new long[number(options, "count", 20_000)];
        SynchronousQueue<Long> arrived = new SynchronousQueue<>();
        DefaultMQPushConsumer consumer = consumer(options, 1, count -> {
            try {
                arrived.put(System.nanoTime());
            } catch (InterruptedException atTheEnd) {
                Thread.currentThread().interrupt();
            }
        });
        consumer.subscribe(options.get("topic"), "*");
        consumer.start();
        DefaultMQProducer producer = producer(options);
        Message message = message(options);
        Stopwatch watch = null;
        for (int i = 0; i < warmUp + latencies.length; i++) {
            if (i == warmUp) {
                watch = new Stopwatch();
            }
            long started = System.nanoTime();
            producer.send(copy(message));
            long handled = arrived.take();
            if (i >= warmUp) {
                latencies[i - warmUp] = handled - started;
            }
        }
        watch.stop();
        consumer.shutdown();
        producer.shutdown();
        watch.report(latencies);
    }

    /** Consumes from many topics until a message of each queue has come. */
    private static void memory(Map<String, String> options) throws Exception {
        CountDownLatch wanted = new CountDownLatch(number(options, "count", 20_000));
        DefaultMQPushConsumer consumer = consumer(options, 1, count -> wanted.countDown());
        for (int i = 0; i < number(options, "topics", 1); i++) {
            consumer.subscribe(options.get("topic") + "-" + i, "*");
        }
        Stopwatch watch = new Stopwatch();
        consumer.start();
        wanted.await();
        watch.stop();
        watch.report();
    }
}
