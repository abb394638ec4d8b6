package siltstone.harness;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;

/**
 * Runs background work in the caller's thread: what is due now at once, the rest when the clock
 * gets there.
 */
final class ManualScheduler implements Scheduler {
    private final Time time;
    private final List<Task> tasks = new ArrayList<>();
    private long sequence = 0;
    private boolean paused = false;

    ManualScheduler(Time time) {
        this.time = time;
    }

    @Override
    public void startup() {}

    @Override
    public void shutdown() {
        tasks.clear();
    }

    @Override
    public void resizeThreadPool(int newSize) {}

    @Override
    public ScheduledFuture<?> schedule(String name, Runnable work, long delayMs, long periodMs) {
        Task task =
                new Task(
                        name,
                        work,
                        time.milliseconds() + Math.max(delayMs, 0),
                        periodMs,
                        sequence++);
        tasks.add(task);
        runDue();
        return task;
    }

    /**
     * While paused nothing runs, as if the background threads were starved; a crash can then fall
     * before them.
     */
    void pause(boolean newPaused) {
        paused = newPaused;
        runDue();
    }

    List<String> pendingNames() {
        return tasks.stream().sorted(Task.ORDER).map(task -> task.name).toList();
    }

    void runDue() {
        while (!paused) {
            Task next = tasks.stream().min(Task.ORDER).orElse(null);
            if (next == null || next.dueMs > time.milliseconds()) return;
            tasks.remove(next);
            if (next.periodMs >= 0) {
                next.dueMs += Math.max(next.periodMs, 1);
                tasks.add(next);
            }
            next.work.run();
        }
    }

    private final class Task implements ScheduledFuture<Object> {
        static final Comparator<Task> ORDER =
                Comparator.<Task>comparingLong(task -> task.dueMs)
                        .thenComparingLong(task -> task.order);

        final String name;
        final Runnable work;
        final long periodMs;
        final long order;
        long dueMs;

        Task(String name, Runnable work, long dueMs, long periodMs, long order) {
            this.name = name;
            this.work = work;
            this.dueMs = dueMs;
            this.periodMs = periodMs;
            this.order = order;
        }

        @Override
        public boolean cancel(boolean mayInterruptIfRunning) {
            return tasks.remove(this);
        }

        @Override
        public boolean isCancelled() {
            return !tasks.contains(this);
        }

        @Override
        public boolean isDone() {
            return !tasks.contains(this);
        }

        @Override
        public Object get() {
            throw new UnsupportedOperationException();
        }

        @Override
        public Object get(long timeout, TimeUnit unit) {
            throw new UnsupportedOperationException();
        }

        @Override
        public long getDelay(TimeUnit unit) {
            return unit.convert(dueMs - time.milliseconds(), TimeUnit.MILLISECONDS);
        }

        @Override
        public int compareTo(Delayed other) {
            return Long.compare(
                    getDelay(TimeUnit.MILLISECONDS), other.getDelay(TimeUnit.MILLISECONDS));
        }
    }
}
