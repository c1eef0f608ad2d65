package shadow

import (
	"fmt"
	"time"

	"github.com/fastadmit/fastadmit/admission"
)

const (
	// stuckAfter is when a review is stuck: its plugins have as long to notice that their time is over as they had.
	stuckAfter = 2 * reviewMax

	// stuckMax is how many reviews may be stuck until the shadow stops: one for each Trial, and a few Trials are loaded
	// until somebody has found the reason. Each holds a goroutine, and the memory of its review.
	stuckMax = 8

	// stacksMax is how many bytes of stacks the log has.
	stacksMax = 8 << 10
)

// watch makes another worker go on if the review of a job is stuck. A plugin that does not return cannot be ended.
func (w *worker) watch(t *Trial, bytes int64) *time.Timer {
	return time.AfterFunc(stuckAfter, func() {
		w.queued.Add(-bytes)
		t.stuck.Add(1)
		w.stuck.Add(1)
		w.counted.Load().skip(t, skippedStuck)
		w.o.Log.Error("the shadow has stopped: "+t.stopped(), "stacks", admission.Stacks("shadow.(*worker).take(", stacksMax))
		go w.run()
	})
}

// unwatch ends what watch began. It returns false if the review was stuck: then another worker has gone on.
func (w *worker) unwatch(timer *time.Timer, t *Trial) bool {
	if timer.Stop() {
		return true
	}
	t.stuck.Add(-1)
	w.stuck.Add(-1)
	return false
}

// isStopped reports whether no review is asked at the moment, because plugins do not return.
func (t *Trial) isStopped() bool { return t.stuck.Load() > 0 || t.shadow.stuck.Load() >= stuckMax }

// stopped says why no review is asked; "" if they are.
func (t *Trial) stopped() string {
	switch {
	case t.shadow.stuck.Load() >= stuckMax:
		return fmt.Sprintf("plugins have not returned from %d reviews, of this configuration and of former ones. "+
			"It goes on when the server is started again, or one of them returns", stuckMax)
	case t.stuck.Load() > 0:
		return "a plugin has not returned from a review. The log has its stack. The shadow goes on when the configuration is loaded again, " +
			"or the plugin returns"
	}
	return ""
}
