import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Shares out queues with each strategy, and prints one object a case: {"topic", "queues": ["broker/id"],
 * "members": [...], "AVG": [[the places in "queues" of the first member's], ...], and so on for the others}.
 * It needs no cluster. A machine room is the part before the @ of a broker name or client id.
 * Options: --cases N.
 */
public class Allocate {
    private static final String GROUP = "g";
    private static final List<String> ROOMS = Arrays.asList("hz", "sh", "bj", "\u00c4x");

    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> {
            Random random = new Random(7);
            for (int i = 0; i < Integer.parseInt(options.get("cases")); i++) {
                shareOut(random);
            }
        });
    }

    private static void shareOut(Random random) {
        String topic = random.nextInt(4) == 0 ? "%RETRY%g" : "Topic-" + random.nextInt(100);
        List<MessageQueue> queues = queues(random, topic);
        List<String> members = members(random);
        List<Object> line = new ArrayList<>(Arrays.asList("topic", topic, "queues", names(queues)));
        line.addAll(Arrays.asList("members", members));
        strategies().forEach((name, strategy) -> {
            List<List<Integer>> shares = new ArrayList<>();
            for (String member : members) {
                List<Integer> share = new ArrayList<>();
                for (MessageQueue queue : strategy.allocate(GROUP, member, queues, members)) {
                    share.add(queues.indexOf(queue));
                }
                shares.add(share);
            }
            line.add(name);
            line.add(shares);
        });
        Terminal.print(line.toArray());
    }

    private static Map<String, AllocateMessageQueueStrategy> strategies() {
        Map<String, AllocateMessageQueueStrategy> strategies = new LinkedHashMap<>();
        strategies.put("AVG", new AllocateMessageQueueAveragely());
        strategies.put("AVG_BY_CIRCLE", new AllocateMessageQueueAveragelyByCircle());
        strategies.put("CONSISTENT_HASH", new AllocateMessageQueueConsistentHash());
        strategies.put("CONSISTENT_HASH-3", new AllocateMessageQueueConsistentHash(3));
        AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
        rooms.setConsumeridcs(new HashSet<>(Arrays.asList("hz", "bj")));
        strategies.put("MACHINE_ROOM", rooms);
        strategies.put("MACHINE_ROOM_NEARBY-AVG", nearby(new AllocateMessageQueueAveragely()));
        strategies.put("MACHINE_ROOM_NEARBY-CONSISTENT_HASH", nearby(new AllocateMessageQueueConsistentHash()));
        return strategies;
    }

    private static AllocateMessageQueueStrategy nearby(AllocateMessageQueueStrategy inner) {
        return new AllocateMachineRoomNearby(inner, new AllocateMachineRoomNearby.MachineRoomResolver() {
            @Override
            public String brokerDeployIn(MessageQueue queue) {
                return queue.getBrokerName().split("@")[0];
            }

            @Override
            public String consumerDeployIn(String clientId) {
                return clientId.split("@")[0];
            }
        });
    }

    private static List<MessageQueue> queues(Random random, String topic) {
        List<MessageQueue> queues = new ArrayList<>();
        int brokers = 1 + random.nextInt(4);
        for (int broker = 0; broker < brokers; broker++) {
            String room = ROOMS.get(random.nextInt(ROOMS.size()));
            String name = random.nextInt(5) == 0 ? "broker-" + broker : room + "@broker-" + broker;
            int count = 1 + random.nextInt(12);
            for (int id = 0; id < count; id++) {
                queues.add(new MessageQueue(topic, name, id));
            }
        }
        Collections.sort(queues);
        return queues;
    }

    private static List<String> members(Random random) {
        TreeSet<String> members = new TreeSet<>();
        int count = 1 + random.nextInt(8);
        while (members.size() < count) {
            members.add(ROOMS.get(random.nextInt(3)) + "@192.168.0." + random.nextInt(256) + "#" + random.nextInt(9999));
        }
        return new ArrayList<>(members);
    }

    private static List<String> names(List<MessageQueue> queues) {
        List<String> names = new ArrayList<>();
        for (MessageQueue queue : queues) {
            names.add(queue.getBrokerName() + "/" + queue.getQueueId());
        }
        return names;
    }
}
