package shadow

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/compare"
	"github.com/fastadmit/fastadmit/internal/recording"
	"github.com/fastadmit/fastadmit/internal/turns"
)

// A stand is a Shadow with what it logs and counts.
type stand struct {
	*Shadow
	set  *metrics.Set
	log  bytes.Buffer
	busy atomic.Bool
}

func newStand() *stand {
	s := &stand{set: metrics.NewSet()}
	s.Shadow = New(&Options{
		Turns: turns.New(metrics.NewSet()), Busy: s.busy.Load, MemoryOf: func(body []byte) int64 { return int64(100 * len(body)) },
		Log: slog.New(slog.NewTextHandler(&s.log, nil)), Metrics: s.set,
	})
	return s
}

// try makes the Shadow try a validating plugin.
func (s *stand) try(t testing.TB, c Config, validate func(context.Context, *codec.Review) admission.Result) *Trial {
	t.Helper()
	var err error
	c.Chain, err = admission.NewChain([]admission.Plugin{{
		Name: "P", Validates: true, Rules: []admission.Rule{admission.Any()},
		New: func(admission.Setup) (admission.Handler, error) { return admission.Handler{Validate: validate}, nil },
	}}, map[string]admission.Enabled{"P": {}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.ProcessorPercent == 0 {
		c.ProcessorPercent = 100
	}
	return s.Use(&c, "digest")
}

func bodyOf(resource, namespace, name, more string) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u",`+
		`"kind":{"group":"","version":"v1","kind":"K"},"resource":{"group":"","version":"v1","resource":%q},`+
		`"name":%q,"namespace":%q,"operation":"CREATE","userInfo":{"username":"jane"},`+
		`"object":{"metadata":{"name":%q}%s},"oldObject":null,"dryRun":false,"options":null}}`, resource, name, namespace, name, more)
}

// give hands a review to the shadow that was answered by edit.
func give(t testing.TB, trial *Trial, body []byte, edit func(*codec.Response)) {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	review.Response.Allowed = true
	edit(&review.Response)
	answer := &recording.Answer{Decision: recording.Allowed, Endpoint: "validate"}
	if !review.Response.Allowed {
		answer.Decision, answer.Plugin = recording.Denied, review.Response.DeniedBy
	}
	trial.Take(answer, review, body)
}

func allowed(*codec.Response) {}

func allow(context.Context, *codec.Review) admission.Result { return admission.Allowed() }

func deny(message string) func(context.Context, *codec.Review) admission.Result {
	return func(context.Context, *codec.Review) admission.Result {
		return admission.Result{Denial: &codec.Status{Code: 403, Message: message}}
	}
}

// done waits until the shadow has done with as many reviews.
func (s *stand) done(t testing.TB, want int64) Report {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); runtime.Gosched() {
		report, ok := s.Report()
		n := report.Reviews
		for _, skipped := range report.Skipped {
			n += skipped
		}
		if !ok || n >= want {
			return report
		}
	}
	t.Fatalf("the shadow has not done with %d reviews", want)
	return Report{}
}

// has reports whether the metrics have a line.
func (s *stand) has(line string) bool {
	var b bytes.Buffer
	s.set.WritePrometheus(&b)
	return strings.Contains(b.String(), line+"\n")
}

func TestDifferences(t *testing.T) {
	s := newStand()
	defer s.Close()
	trial := s.try(t, Config{}, deny("no"))
	for range 2 {
		give(t, trial, bodyOf("pods", "shop", "web", ""), allowed)
	}
	give(t, trial, bodyOf("pods", "shop", "web", ""), func(r *codec.Response) {
		r.Allowed, r.DeniedBy, r.Status = false, "P", codec.Status{Code: 403, Message: "P: no", Reason: ""}
	})
	give(t, trial, bodyOf("pods", "shop", "web", ""), func(r *codec.Response) {
		r.Allowed, r.DeniedBy, r.Status = false, "Q", codec.Status{Code: 403, Message: "Q: else"}
	})
	report := s.done(t, 4)
	s.Close()
	if report.Reviews != 4 || report.Differing != 3 || len(report.Differences) != 2 || report.Configuration != "digest" {
		t.Fatalf("got %+v", report)
	}
	first, second := report.Differences[0], report.Differences[1]
	if first.Plugin != "P" || first.From != "allowed" || first.To != "denied" || first.Reviews != 2 || first.Namespace != "shop" ||
		first.Resource != "pods" || first.Example.About != "allowed\nnow denied by P: no" ||
		first.Example.Name != "web" || first.Example.User != "jane" {
		t.Errorf("got %+v", first)
	}
	if second.From != "denied" || second.To != "denied" || second.Reviews != 1 ||
		second.Example.About != "denied by Q: else\nnow denied by P: no" {
		t.Errorf("got %+v", second)
	}
	for _, line := range []string{
		`fastadmit_shadow_differences_total{plugin="P",policy="",from="allowed",to="denied"} 2`,
		`fastadmit_shadow_differences_total{plugin="P",policy="",from="denied",to="denied"} 1`, "fastadmit_shadow_reviews_total 4",
	} {
		if !s.has(line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if !strings.Contains(s.log.String(), `msg="the shadow answers something else" plugin=P policy="" from=allowed to=denied`) {
		t.Errorf("got the log %s", &s.log)
	}
}

// TestHostileTexts has texts that users chose in messages: they become no labels, and take little memory.
func TestHostileTexts(t *testing.T) {
	s := newStand()
	defer s.Close()
	trial := s.try(t, Config{}, allow)
	long := strings.Repeat("x", 20<<10)
	for i := range 3 * groupsMax {
		give(t, trial, bodyOf("pods", fmt.Sprintf("n%d", i), "web", ""), func(r *codec.Response) {
			r.Warn(fmt.Sprintf("Evil%d: ValidatingAdmissionPolicy 'evil-%d\x1b' %s", i, i, long))
		})
		s.done(t, int64(i+1))
	}
	report := s.done(t, 3*groupsMax)
	if len(report.Differences) > groupsMax+1 || report.Differing != 3*groupsMax {
		t.Errorf("got %d groups of %d reviews, want at most %d of all", len(report.Differences), report.Differing, groupsMax+1)
	}
	for _, d := range report.Differences {
		if d.Plugin != "" || d.Policy != "" || len(d.Example.About) > aboutBytesMax {
			t.Fatalf("got %+v", d)
		}
	}
	want := fmt.Sprintf(`fastadmit_shadow_differences_total{plugin="",policy="",from="warned",to="allowed"} %d`, 3*groupsMax)
	if !s.has(want) {
		t.Error("the metrics lack " + want)
	}
}

// TestPolicyLabels has more policies than have series, and names that cannot be labels.
func TestPolicyLabels(t *testing.T) {
	set := metrics.NewSet()
	c := newCounters(set)
	for i := range 2 * policiesMax {
		c.differ(&Difference{Plugin: validatingPolicies, Policy: fmt.Sprintf("p%d", i), From: "allowed", To: "denied"})
	}
	c.differ(&Difference{Plugin: validatingPolicies, Policy: "p\"\n\u202e", From: "allowed", To: "denied"})
	series := 0
	for _, name := range set.ListMetricNames() {
		if strings.Contains(name, "differences") {
			series++
		}
	}
	other := set.GetOrCreateCounter(fmt.Sprintf("fastadmit_shadow_differences_total{plugin=%q,policy=%q,from=%q,to=%q}",
		validatingPolicies, "other", "allowed", "denied"))
	if series != policiesMax+1 || other.Get() != policiesMax+1 {
		t.Errorf("got %d series, %d others", series, other.Get())
	}
}

// TestPolicyNames finds the policy in messages and warnings of the plugin that evaluates policies only.
func TestPolicyNames(t *testing.T) {
	w := &worker{trial: &Trial{known: map[string]bool{"P": true, validatingPolicies: true, mutatingPolicies: true}}}
	f := func(change, by, message string, warnings []string, plugin, policy string) {
		t.Helper()
		before := &compare.Outcome{Decision: recording.Allowed}
		after := &compare.Outcome{Decision: recording.Denied, Plugin: by, Message: message, Warnings: warnings}
		gotPlugin, gotPolicy := w.cause(&compare.Difference{Change: change, Plugin: by}, before, after)
		if gotPlugin != plugin || gotPolicy != policy {
			t.Errorf("%s %s: got %q %q, want %q %q", by, message, gotPlugin, gotPolicy, plugin, policy)
		}
	}
	const message = "ValidatingAdmissionPolicy 'one' with binding 'b' denied request: no"
	f("allowed to denied", validatingPolicies, message, nil, validatingPolicies, "one")
	f("allowed to denied", "P", message, nil, "P", "")
	f("allowed to denied", "Unknown", message, nil, "", "")
	f(compare.ChangedWarnings, "", "", []string{"Validation failed for " + message}, validatingPolicies, "one")
}

// TestPatchedBy attributes another stored object to the plugin that is not the same, or that alone changed it.
func TestPatchedBy(t *testing.T) {
	trial := &Trial{Config: Config{Changed: []string{"B"}}, known: map[string]bool{"A": true, "B": true, "C": true}}
	for names, want := range map[string]string{"A": "A", "A B": "B", "A C": "", "A B C": "B", "A A x": "A", "x": "", "": ""} {
		if got := trial.patchedBy(strings.Fields(names)); got != want {
			t.Errorf("%s: got %q, want %q", names, got, want)
		}
	}
}

// TestSecret has a Secret whose stored object differs: its data is neither shown nor logged.
func TestSecret(t *testing.T) {
	s := newStand()
	defer s.Close()
	trial := s.try(t, Config{}, allow)
	give(t, trial, bodyOf("secrets", "shop", "web", `,"data":{"a":"aHVudGVyMg=="}`), func(r *codec.Response) {
		r.Patch = []byte(`[{"op":"replace","path":"/data/a","value":"c2VjcmV0"}]`)
	})
	give(t, trial, bodyOf("pods", "shop", "web", `,"data":{"a":"b"}`), func(r *codec.Response) {
		r.Patch = []byte(`[{"op":"replace","path":"/data/a","value":"c2VjcmV0"}]`)
	})
	report := s.done(t, 2)
	s.Close()
	for _, d := range report.Differences {
		if d.From != "patched" || d.To != "allowed" || d.Resource == "secrets" && d.Example.About != "the stored Secret changes" ||
			d.Resource == "pods" && !strings.Contains(d.Example.About, `"value":"b"`) {
			t.Errorf("got %+v", d)
		}
	}
	if len(report.Differences) != 2 || strings.Contains(s.log.String(), "aHVudGVyMg") || strings.Contains(s.log.String(), "c2VjcmV0") {
		t.Errorf("got %d differences, the log %s", len(report.Differences), &s.log)
	}
}

// TestLeftOut skips what plugins decided or changed that the shadow has not.
func TestLeftOut(t *testing.T) {
	s := newStand()
	defer s.Close()
	trial := s.try(t, Config{LeftOut: []string{"Q"}}, allow)
	give(t, trial, bodyOf("pods", "a", "b", ""), func(r *codec.Response) {
		r.Allowed, r.DeniedBy, r.Status = false, "Q", codec.Status{Code: 403, Message: "Q: no"}
	})
	give(t, trial, bodyOf("pods", "a", "b", ""), func(r *codec.Response) {
		r.Patch = []byte(`[{"op":"add","path":"/x","value":1}]`)
		if err := r.Annotate("Q", "patched"); err != nil {
			t.Error(err)
		}
	})
	if report := s.done(t, 2); report.Skipped[skippedLeftOut.String()] != 2 || report.Reviews != 0 {
		t.Errorf("got %+v", report)
	}
}

// TestFull fills the queue while a review does not end: further reviews are skipped, by number and by bytes, and Close
// does not wait for those that wait.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := func(bytes, wantQueued int) {
			s := newStand()
			trial := s.try(t, Config{MemoryMax: 4 << 20}, func(ctx context.Context, _ *codec.Review) admission.Result {
				<-ctx.Done()
				return admission.Allowed()
			})
			body := bodyOf("pods", "a", "b", `,"a":"`+strings.Repeat("x", bytes)+`"`)
			s.o.MemoryOf = func([]byte) int64 { return 1 }
			give(t, trial, body, allowed)
			synctest.Wait() // the worker has it
			for range 1000 {
				give(t, trial, body, allowed)
			}
			if len(s.queue) != wantQueued || trial.found.skipped[skippedQueue].Load() != int64(1000-wantQueued) {
				t.Errorf("%d bytes: got %d queued and %v", bytes, len(s.queue), trial.found.skipped[skippedQueue].Load())
			}
			begin := time.Now()
			s.Close()
			if took := time.Since(begin); took != 0 {
				t.Errorf("Close took %s", took)
			}
			synctest.Wait()
		}
		f(0, queueMax)
		f(100<<10, 9) // and the one in progress
	})
}

// TestShed skips reviews while the server has much to do: when they are answered, and when their turn comes.
func TestShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		goOn := make(chan struct{})
		trial := s.try(t, Config{}, func(context.Context, *codec.Review) admission.Result {
			<-goOn
			return admission.Allowed()
		})
		for range 2 {
			give(t, trial, bodyOf("pods", "a", "b", ""), allowed)
		}
		synctest.Wait()
		s.busy.Store(true)
		give(t, trial, bodyOf("pods", "a", "b", ""), allowed)
		close(goOn)
		synctest.Wait()
		if report, _ := s.Report(); report.Reviews != 1 || report.Skipped[skippedLoad.String()] != 2 ||
			!s.has(`fastadmit_shadow_skipped_total{reason="load"} 2`) {
			t.Errorf("got %+v", report)
		}
		s.Close()
	})
}

// TestShare has reviews that each take a second: with a tenth of a processor, one begins every ten seconds.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		begin := time.Now()
		var at []time.Duration
		trial := s.try(t, Config{ProcessorPercent: 10}, func(context.Context, *codec.Review) admission.Result {
			at = append(at, time.Since(begin))
			time.Sleep(time.Second)
			return admission.Allowed()
		})
		for range 3 {
			give(t, trial, bodyOf("pods", "a", "b", ""), allowed)
		}
		time.Sleep(time.Minute)
		s.Close()
		if fmt.Sprint(at) != "[0s 10s 20s]" {
			t.Errorf("got reviews at %v", at)
		}
	})
}

// TestTime has a review that takes too long. It is not compared.
func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		trial := s.try(t, Config{}, func(ctx context.Context, _ *codec.Review) admission.Result {
			<-ctx.Done()
			return admission.Errored(ctx.Err())
		})
		give(t, trial, bodyOf("pods", "a", "b", ""), allowed)
		time.Sleep(reviewMax + time.Second)
		if report, _ := s.Report(); report.Reviews != 0 || report.Skipped[skippedTime.String()] != 1 {
			t.Errorf("got %+v", report)
		}
		s.Close()
	})
}

// TestStuck has a plugin that does not return: the shadow says so, goes on when it returns, and with another configuration, until
// too many reviews are stuck.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		goOn := make(chan struct{})
		body := bodyOf("pods", "a", "b", "")
		block := func(context.Context, *codec.Review) admission.Result {
			<-goOn
			return admission.Allowed()
		}
		stuck := func(trial *Trial, want string, reviews, skipped int64) {
			t.Helper()
			synctest.Wait()
			report, _ := s.Report()
			if !strings.Contains(report.Stopped, want) || (report.Stopped == "") != (want == "") || report.Reviews != reviews ||
				report.Skipped[skippedStuck.String()] != skipped || s.queued.Load() != 0 {
				t.Errorf("got %+v, %d bytes in the queue, want %q, %d reviews, %d skipped", report, s.queued.Load(), want, reviews, skipped)
			}
			if trial.isStopped() != (want != "") {
				t.Errorf("got %v, want %q", trial.isStopped(), want)
			}
		}
		trial := s.try(t, Config{}, block)
		give(t, trial, body, allowed)
		give(t, trial, body, allowed) // waits
		time.Sleep(stuckAfter)
		give(t, trial, body, allowed)
		stuck(trial, "a plugin has not returned from a review", 0, 3)
		if text := s.log.String(); !strings.Contains(text, "the shadow has stopped: a plugin has not") ||
			!strings.Contains(text, "TestStuck") || !s.has("fastadmit_shadow_stuck_reviews 1") ||
			!s.has(`fastadmit_shadow_skipped_total{reason="stuck"} 3`) {
			t.Errorf("got the log %s", text)
		}
		goOn <- struct{}{} // it was only slow
		stuck(trial, "", 0, 3)
		give(t, trial, body, allowed)
		goOn <- struct{}{}
		stuck(trial, "", 1, 3)

		for i := range int64(stuckMax) { // each configuration has the same mistake
			trial = s.try(t, Config{}, block)
			give(t, trial, body, allowed)
			time.Sleep(stuckAfter)
			stuck(trial, map[bool]string{true: "from 8 reviews", false: "a plugin has not"}[i == stuckMax-1], 0, 1)
			if i < stuckMax-1 {
				other := s.try(t, Config{}, allow)
				give(t, other, body, allowed)
				stuck(other, "", 1, 0)
			}
		}
		trial = s.try(t, Config{}, allow)
		give(t, trial, body, allowed)
		stuck(trial, "from 8 reviews", 0, 1)
		goOn <- struct{}{}
		stuck(trial, "", 0, 1)
		give(t, trial, body, allowed)
		stuck(trial, "", 1, 1)
		begin := time.Now()
		s.Close()
		if took := time.Since(begin); took != 0 {
			t.Errorf("Close took %s, want it not to wait for reviews that are stuck", took)
		}
		close(goOn)
	})
}

// TestStuckEnds has a plugin that ends its goroutine after the review was stuck: no other worker begins, as one has.
func TestStuckEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		var first atomic.Bool
		first.Store(true)
		trial := s.try(t, Config{}, func(context.Context, *codec.Review) admission.Result {
			if first.Swap(false) {
				time.Sleep(stuckAfter + time.Second)
				runtime.Goexit()
			}
			return admission.Allowed()
		})
		give(t, trial, bodyOf("pods", "a", "b", ""), allowed)
		time.Sleep(stuckAfter + 2*time.Second)
		give(t, trial, bodyOf("pods", "a", "b", ""), allowed)
		synctest.Wait()
		if report, _ := s.Report(); report.Reviews != 1 || report.Skipped[skippedStuck.String()] != 1 || len(report.Skipped) != 1 {
			t.Errorf("got %+v", report)
		}
		s.Close() // panics if two workers end
	})
}

// TestMemory has reviews that need more memory than the shadow has: because of the length, the estimate, and what
// the plugin makes.
func TestMemory(t *testing.T) {
	s := newStand()
	defer s.Close()
	trial := s.try(t, Config{MemoryMax: 1 << 20}, func(_ context.Context, review *codec.Review) admission.Result {
		if !review.Object.Makes(1 << 20) {
			return admission.Errored(review.Err())
		}
		return admission.Allowed()
	})
	give(t, trial, bodyOf("pods", "a", "b", ""), allowed)
	for _, bytes := range []int{100 << 10, 10 << 10} { // eightfold, and a hundredfold
		give(t, trial, bodyOf("pods", "a", "b", `,"a":"`+strings.Repeat("x", bytes)+`"`), allowed)
	}
	if report := s.done(t, 3); report.Skipped[skippedMemory.String()] != 3 {
		t.Errorf("got %+v", report)
	}
}

// TestFailures has a plugin that panics, fails, or ends its goroutine. The next review is asked all the same.
func TestFailures(t *testing.T) {
	s := newStand()
	trial := s.try(t, Config{}, func(_ context.Context, review *codec.Review) admission.Result {
		switch review.Name() {
		case "panics":
			panic("hunter2")
		case "ends":
			runtime.Goexit()
		case "fails":
			return admission.Errored(io.ErrUnexpectedEOF)
		}
		return admission.Allowed()
	})
	for _, name := range []string{"panics", "ends", "fails", "works"} {
		give(t, trial, bodyOf("pods", "a", name, ""), allowed)
	}
	report := s.done(t, 4)
	s.Close()
	if report.Reviews != 3 || report.Differing != 2 || report.Skipped[skippedPanic.String()] != 1 || report.Differences[0].To != "failed" {
		t.Errorf("got %+v", report)
	}
	if !s.has(`fastadmit_shadow_plugin_failures_total{plugin="P"} 3`) || strings.Contains(s.log.String(), "hunter2") ||
		!strings.Contains(s.log.String(), "plugin panicked in the shadow") {
		t.Errorf("got the log %s", &s.log)
	}
}

// TestUseAnother changes what is tried while reviews wait: these are skipped.
func TestUseAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		goOn := make(chan struct{})
		first := s.try(t, Config{}, func(context.Context, *codec.Review) admission.Result {
			<-goOn
			return admission.Allowed()
		})
		for range 3 {
			give(t, first, bodyOf("pods", "a", "b", ""), allowed)
		}
		synctest.Wait()
		second := s.try(t, Config{}, deny("no"))
		close(goOn)
		give(t, first, bodyOf("pods", "a", "b", ""), allowed) // of a call that began before
		give(t, second, bodyOf("pods", "a", "b", ""), allowed)
		synctest.Wait()
		if report, _ := s.Report(); report.Reviews != 1 || report.Differing != 1 || len(report.Skipped) != 0 {
			t.Errorf("got %+v", report)
		}
		if got := first.found.report; got.Reviews != 1 || first.found.skipped[skippedReload].Load() != 3 {
			t.Errorf("the first: got %+v", got)
		}
		if s.Use(nil, "") != nil {
			t.Error("got something that is tried")
		}
		give(t, second, bodyOf("pods", "a", "b", ""), allowed)
		synctest.Wait()
		if _, ok := s.Report(); ok || second.found.skipped[skippedReload].Load() != 1 {
			t.Error("the shadow went on")
		}
		s.Close()
	})
}

// TestPlugins has a plugin with side effects, which sees dry runs, and one without.
func TestPlugins(t *testing.T) {
	var sawDryRun []bool
	create := func(admission.Setup) (admission.Handler, error) {
		return admission.Handler{Validate: func(_ context.Context, review *codec.Review) admission.Result {
			sawDryRun = append(sawDryRun, review.DryRun())
			return admission.Allowed()
		}}, nil
	}
	rules := []admission.Rule{admission.Any()}
	table := []admission.Plugin{
		{Name: "A", Validates: true, Rules: rules, SideEffects: "NoneOnDryRun", New: create},
		{Name: "B", Validates: true, Rules: rules, New: create},
	}
	chain, err := admission.NewChain(Plugins(table, slog.New(slog.DiscardHandler), metrics.NewSet()),
		map[string]admission.Enabled{"A": {}, "B": {}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newStand()
	trial := s.Use(&Config{Chain: chain, ProcessorPercent: 100}, "")
	give(t, trial, bodyOf("pods", "a", "b", ""), allowed)
	s.done(t, 1)
	s.Close()
	if fmt.Sprint(sawDryRun) != "[true false]" {
		t.Errorf("got dry runs %v, want one for the plugin with side effects", sawDryRun)
	}
}

// BenchmarkTake measures what the shadow costs a request.
func BenchmarkTake(b *testing.B) {
	s := newStand()
	defer s.Close()
	trial := s.try(b, Config{ProcessorPercent: 1}, allow)
	body := bodyOf("pods", "shop", "web", `,"a":"`+strings.Repeat("x", 7800)+`"`)
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		b.Fatal(err)
	}
	review.Response.Allowed = true
	answer := &recording.Answer{Decision: recording.Allowed, Endpoint: "validate"}
	b.Run("waits", func(b *testing.B) { // for the worker, which is taken out of the way
		for b.Loop() {
			trial.Take(answer, review, body)
			select {
			case j := <-s.queue:
				s.release(j)
			default:
			}
		}
	})
	b.Run("full", func(b *testing.B) {
		for len(s.queue) < cap(s.queue) {
			trial.Take(answer, review, body)
		}
		for b.Loop() {
			trial.Take(answer, review, body)
		}
	})
}
