import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends messages one after another and prints each result.
 * Options: --namesrv ADDRESS, --topic TOPIC, --body TEXT or --body-base64 BYTES, and optionally --count N,
 * --tags TAGS, --keys KEYS, --property.NAME VALUE (any number), --delay-level N, --group GROUP,
 * --sharding-key KEY (chooses the queue by its hash), --trace (writes trace records), and those of Access.
 * "{i}" in the text of body, keys and sharding key is the message's number, from 0.
 * With --seconds S it sends one message after another, 50 ms apart, until S seconds after it has printed "ready". It
 * prints the outcome of each: "seconds", and "error" if it failed. --timeout MS is that of each send then.
 */
public class Send {
    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> send(options));
    }

    private static void send(Map<String, String> options) throws Exception {
        String group = options.getOrDefault("group", "java-send");
        DefaultMQProducer producer = Access.to(options, new DefaultMQProducer(
            group, Access.hook(options), options.containsKey("trace"), null));
        producer.start();
        if (options.containsKey("seconds")) {
            sendSteadily(producer, options);
            producer.shutdown();
            return;
        }
        int count = Integer.parseInt(options.getOrDefault("count", "1"));
        for (int i = 0; i < count; i++) {
            SendResult result = send(producer, options, Integer.toString(i));
            Terminal.print(
                "msgId", result.getMsgId(),
                "offsetMsgId", result.getOffsetMsgId(),
                "brokerName", result.getMessageQueue().getBrokerName(),
                "queueId", result.getMessageQueue().getQueueId(),
                "queueOffset", result.getQueueOffset(),
                "status", result.getSendStatus().name());
        }
        producer.shutdown();
    }

    private static void sendSteadily(DefaultMQProducer producer, Map<String, String> options) throws Exception {
        producer.setSendMsgTimeout(Integer.parseInt(options.get("timeout")));
        producer.send(message(options, "first"));
        Terminal.print("ready", "steadily");
        long end = System.nanoTime() + Long.parseLong(options.get("seconds")) * 1_000_000_000L;
        for (int i = 0; System.nanoTime() < end; i++) {
            long began = System.nanoTime();
            String error = "";
            try {
                producer.send(message(options, Integer.toString(i)));
            } catch (Exception failure) {
                error = String.valueOf(failure);
            }
            Terminal.print("seconds", (System.nanoTime() - began) / 1e9, "error", error);
            Thread.sleep(50);
        }
    }

    private static SendResult send(DefaultMQProducer producer, Map<String, String> options, String number)
        throws Exception {
        String key = options.get("sharding-key");
        return key == null
            ? producer.send(message(options, number))
            : producer.send(message(options, number), new SelectMessageQueueByHash(), key.replace("{i}", number));
    }

    private static Message message(Map<String, String> options, String number) {
        byte[] body = options.containsKey("body-base64")
            ? Base64.getDecoder().decode(options.get("body-base64"))
            : options.getOrDefault("body", "").replace("{i}", number).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(options.get("topic"), body);
        if (options.containsKey("tags")) {
            message.setTags(options.get("tags"));
        }
        if (options.containsKey("keys")) {
            message.setKeys(options.get("keys").replace("{i}", number));
        }
        if (options.containsKey("delay-level")) {
            message.setDelayTimeLevel(Integer.parseInt(options.get("delay-level")));
        }
        options.forEach((name, value) -> {
            if (name.startsWith("property.")) {
                message.putUserProperty(name.substring("property.".length()), value);
            }
        });
        return message;
    }
}
