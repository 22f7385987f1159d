import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends requests one after another and prints each reply: {"reply": body, ...}.
 * Options: --namesrv ADDRESS, --topic TOPIC, --group GROUP, --body TEXT, and optionally --count N and those of Access.
 * "{i}" in the body is the request's number, from 0.
 */
public class Request {
    private static final long TIMEOUT_MILLIS = 20_000;

    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> request(options));
    }

    private static void request(Map<String, String> options) throws Exception {
        DefaultMQProducer producer = Access.to(
            options, new DefaultMQProducer(options.get("group"), Access.hook(options)));
        producer.start();
        for (int i = 0; i < Integer.parseInt(options.getOrDefault("count", "1")); i++) {
            String body = options.get("body").replace("{i}", Integer.toString(i));
            Message request = new Message(options.get("topic"), body.getBytes(StandardCharsets.UTF_8));
            Message reply = producer.request(request, TIMEOUT_MILLIS);
            Terminal.print(
                "reply", new String(reply.getBody(), StandardCharsets.UTF_8),
                "topic", reply.getTopic(),
                "properties", reply.getProperties());
        }
        producer.shutdown();
    }
}
