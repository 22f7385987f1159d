import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends timed messages, "seconds", "millis", "time" and "recalled", takes the last one back, and prints the results.
 * Options: --namesrv ADDRESS, --topic TOPIC, --delay-ms N, and those of Access.
 */
public class SendTimed {
    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> send(options));
    }

    private static void send(Map<String, String> options) throws Exception {
        DefaultMQProducer producer = Access.to(options, new DefaultMQProducer("java-timed", Access.hook(options)));
        producer.start();
        String topic = options.get("topic");
        long delay = Long.parseLong(options.get("delay-ms"));
        Message seconds = message(topic, "seconds");
        seconds.setDelayTimeSec(delay / 1000);
        print(producer.send(seconds));
        Message millis = message(topic, "millis");
        millis.setDelayTimeMs(delay);
        print(producer.send(millis));
        Message time = message(topic, "time");
        time.setDeliverTimeMs(System.currentTimeMillis() + delay);
        print(producer.send(time));
        Message recalled = message(topic, "recalled");
        recalled.setDelayTimeMs(delay);
        SendResult result = producer.send(recalled);
        print(result);
        Terminal.print("recalled", producer.recallMessage(topic, result.getRecallHandle()));
        producer.shutdown();
    }

    private static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    private static void print(SendResult result) {
        Terminal.print(
            "msgId", result.getMsgId(),
            "queueOffset", result.getQueueOffset(),
            "recallHandle", result.getRecallHandle());
    }
}
