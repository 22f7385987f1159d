import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Replies to requests, with their bodies in capitals: prints {"ready": client id} when it has joined, then
 * the result of each reply. It goes on until it is ended; by SIGTERM it says goodbye first.
 * Options: --namesrv ADDRESS, --topic TOPIC, --group GROUP, and those of Access.
 */
public class Reply {
    private static final long TIMEOUT_MILLIS = 20_000;

    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> reply(options));
    }

    private static void reply(Map<String, String> options) throws Exception {
        DefaultMQProducer producer = Access.to(
            options, new DefaultMQProducer(options.get("group") + "-replies", Access.hook(options)));
        DefaultMQPushConsumer consumer = Access.to(options, new DefaultMQPushConsumer(
            options.get("group"), Access.hook(options), new AllocateMessageQueueAveragely()));
        consumer.setPollNameServerInterval(1000);
        consumer.subscribe(options.get("topic"), "*");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                for (MessageExt request : messages) {
                    String body = new String(request.getBody(), StandardCharsets.UTF_8).toUpperCase();
                    Message reply = MessageUtil.createReplyMessage(request, body.getBytes(StandardCharsets.UTF_8));
                    SendResult result = producer.send(reply, TIMEOUT_MILLIS);
                    Terminal.print("replied", body, "status", result.getSendStatus().name());
                }
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        producer.start();
        consumer.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.shutdown();
            producer.shutdown();
        }));
        Terminal.print("ready", consumer.buildMQClientId());
        new CountDownLatch(1).await();
    }
}
