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
 * --sharding-key KEY (chooses the queue by its hash), and those of Access.
 * "{i}" in the text of body, keys and sharding key is the message's number, from 0.
 */
public class Send {
    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> send(options));
    }

    private static void send(Map<String, String> options) throws Exception {
        String group = options.getOrDefault("group", "java-send");
        DefaultMQProducer producer = Access.to(options, new DefaultMQProducer(group, Access.hook(options)));
        producer.start();
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
