import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends messages as one batch and prints its result, whose ids are those of all messages with commas between.
 * Options: --namesrv ADDRESS, --topic TOPIC, --count N, --body TEXT, --tags TAGS, --keys KEYS, and those of
 * Access.
 * "{i}" in the text of body and keys is the message's number, from 0.
 */
public class SendBatch {
    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> send(options));
    }

    private static void send(Map<String, String> options) throws Exception {
        DefaultMQProducer producer = Access.to(options, new DefaultMQProducer(
            "java-send-batch", Access.hook(options)));
        producer.start();
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(options.get("count")); i++) {
            String number = Integer.toString(i);
            byte[] body = options.get("body").replace("{i}", number).getBytes(StandardCharsets.UTF_8);
            String keys = options.get("keys").replace("{i}", number);
            messages.add(new Message(options.get("topic"), options.get("tags"), keys, body));
        }
        SendResult result = producer.send(messages);
        Terminal.print(
            "msgId", result.getMsgId(),
            "offsetMsgId", result.getOffsetMsgId(),
            "queueId", result.getMessageQueue().getQueueId(),
            "queueOffset", result.getQueueOffset());
        producer.shutdown();
    }
}
