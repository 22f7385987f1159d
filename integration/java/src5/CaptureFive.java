import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The steps of Capture that only 5.x knows: timed messages, recall, pop. */
public class CaptureFive implements Terminal.Work {
    private static final String GROUP = "capture-pop";

    @Override
    public void run() throws Exception {
        timed();
        // Its codes from 200050 on do not fit into the 16 bits that this header has for a code.
        if (!"ROCKETMQ".equals(System.getProperty("rocketmq.serialize.type"))) {
            pop();
        }
    }

    private static void timed() throws Exception {
        DefaultMQProducer producer = Capture.named(new DefaultMQProducer("capture-timed"), "timed");
        producer.start();
        Message soon = new Message(Capture.TOPIC, "TagD", Capture.bytes("in a second"));
        soon.setDelayTimeMs(1000);
        Capture.step("timed by milliseconds", () -> producer.send(soon));
        Message seconds = new Message(Capture.TOPIC, "TagD", Capture.bytes("in two seconds"));
        seconds.setDelayTimeSec(2);
        Capture.step("timed by seconds", () -> producer.send(seconds));
        Message never = new Message(Capture.TOPIC, "TagD", Capture.bytes("recalled"));
        never.setDeliverTimeMs(System.currentTimeMillis() + 3_600_000);
        SendResult sent = producer.send(never);
        Capture.step("recall", () -> producer.recallMessage(Capture.TOPIC, sent.getRecallHandle()));
        Capture.refused("recall nonsense", () -> producer.recallMessage(Capture.TOPIC, "bm9uc2Vuc2U"));
        producer.shutdown();
    }

    private static void pop() throws Exception {
        DefaultMQAdminExt admin = Capture.named(new DefaultMQAdminExt(), "pop-admin");
        admin.start();
        String broker = admin.examineTopicRouteInfo(Capture.TOPIC).getBrokerDatas().get(0).selectBrokerAddr();
        Capture.step("pop mode", () ->
            admin.setMessageRequestMode(broker, Capture.TOPIC, GROUP, MessageRequestMode.POP, 0, 3000));
        admin.shutdown();
        CountDownLatch consumed = new CountDownLatch(3);
        AtomicBoolean failed = new AtomicBoolean();
        DefaultMQPushConsumer consumer = Capture.pushConsumer(GROUP, "pop");
        consumer.subscribe(Capture.TOPIC, "*");
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(30_000);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (failed.compareAndSet(false, true)) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            messages.forEach(message -> consumed.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Capture.await("popped messages", consumed);
        Capture.letAnswersCome();
        consumer.shutdown();
    }
}
