package initialresources

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/jsonclient"
)

// TestQueries has the queries for an image, in order.
func TestQueries(t *testing.T) {
	const cpu = `sum_over_time(count_values("v", clamp_min(ceil(128 * log2(1000 * sum without (cpu) ` +
		`(rate(container_cpu_usage_seconds_total{image=~%s}[60s])))), -1))[%s])`
	const memory = `sum_over_time(count_values("v", clamp_min(ceil(128 * ` +
		`log2(avg_over_time(container_memory_usage_bytes{image=~%s}[60s]))), -1))[%s])`
	f := func(only bool, resource, image string, want ...string) {
		t.Helper()
		p := serve(t, func(string) any { return usage{1, 29} })
		s := p.source(t)
		s.namespaceOnly, s.resolution = only, time.Minute
		if _, err := s.estimate(t.Context(), resource, image, `n"`); err != nil {
			t.Error(err)
		}
		if got := p.queries(); !slices.Equal(got, want) {
			t.Errorf("%q: got queries\n%s\nwant\n%s", image, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	all := func(format, exact, name string) []string {
		return []string{
			fmt.Sprintf(format, exact+`,namespace="n\""`, "7d:60s"), fmt.Sprintf(format, exact+`,namespace="n\""`, "30d:60s"),
			fmt.Sprintf(format, exact, "7d:60s"), fmt.Sprintf(format, exact, "30d:60s"), fmt.Sprintf(format, name, "30d:60s"),
		}
	}
	only := func(format, exact, name string) []string {
		return append(all(format, exact, name)[:2:2], fmt.Sprintf(format, name+`,namespace="n\""`, "30d:60s"))
	}
	const hub = `"nginx:1\\.27|docker\\.io/library/nginx:1\\.27"`
	const hubName = `"nginx([:@].*)?|docker\\.io/library/nginx([:@].*)?"`
	f(false, "cpu", "nginx:1.27", all(cpu, hub, hubName)...)
	f(false, "memory", "nginx:1.27", all(memory, hub, hubName)...)
	f(true, "memory", "nginx:1.27", only(memory, hub, hubName)...)
	f(false, "cpu", "nginx", all(cpu, `"nginx|docker\\.io/library/nginx:latest"`, hubName)...)
	f(false, "cpu", "quay.io/a/b:1", all(cpu, `"quay\\.io/a/b:1"`, `"quay\\.io/a/b([:@].*)?"`)...)
	f(false, "cpu", "r.example.com:5000/a", all(cpu, `"r\\.example\\.com:5000/a|r\\.example\\.com:5000/a:latest"`,
		`"r\\.example\\.com([:@].*)?|docker\\.io/library/r\\.example\\.com([:@].*)?"`)...) // the port is cut, as upstream
	f(false, "cpu", "\"}\\\n:é", all(cpu, `"\"\\}\\\\\n:é"`, `"\"\\}\\\\\n([:@].*)?"`)...)

	// Names that are not valid.
	f(false, "cpu", ":5", all(cpu, `":5"`, "")[:4]...)
	f(true, "cpu", ":5", only(cpu, `":5"`, "")[:2]...)
	f(false, "cpu", "")
	f(false, "cpu", "\xff")
	f(false, "cpu", strings.Repeat("A", imageMax+1))
	for _, n := range []int{imageMax - 1, imageMax} {
		long := strings.Repeat("A", n)
		f(false, "cpu", long, all(cpu, `"`+long+`"`, `"`+long+`([:@].*)?"`)...)
	}
}

// source returns the plugin's source with this server.
func (p *prometheus) source(t testing.TB) *source {
	t.Helper()
	s, err := newSource(&configuration{Source: jsonclient.Config{URL: p.URL}}, metrics.NewSet())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEnough checks when the next query is sent.
func TestEnough(t *testing.T) {
	for samples, want := range map[int64]int{0: 5, samplesThreshold - 1: 5, samplesThreshold: 1, samplesThreshold + 1: 1} {
		p := serve(t, func(string) any { return usage{7, samples} })
		if u, err := p.source(t).estimate(t.Context(), "cpu", "a", "n"); err != nil || u.samples != samples ||
			samples > 0 && u.value != 7 {
			t.Errorf("got %v, %v", u, err)
		}
		if got := len(p.queries()); got != want {
			t.Errorf("%d samples: got %d queries, want %d", samples, got, want)
		}
	}
}

func TestPercentile(t *testing.T) {
	f := func(percentile int64, steps map[string]string, want usage) {
		t.Helper()
		s := serve(t, func(string) any { return vector(steps) }).source(t)
		s.percentile = percentile
		if got, err := s.fetch(t.Context(), "q"); err != nil || got != want {
			t.Errorf("percentile %d of %v: got %v, %v; want %v", percentile, steps, got, err, want)
		}
	}
	ten := map[string]string{"-1": "1", "0": "1", "128": "1", "256": "1", "384": "1", "512": "1", "640": "1", "768": "1",
		"896": "1", "1024": "1"}
	for percentile, want := range map[int64]int64{1: 0, 10: 0, 11: 1, 20: 1, 21: 2, 89: 128, 90: 128, 91: 256, 100: 256} {
		f(percentile, ten, usage{want, 10})
	}
	if got, err := serve(t, func(string) any { return vector(ten) }).source(t).fetch(t.Context(), "q"); err != nil ||
		got != (usage{128, 10}) {
		t.Errorf("got %v, %v, want the percentile 90, which is upstream's default", got, err)
	}
	f(90, map[string]string{"128": "9", "256": "1"}, usage{2, 10})
	f(90, map[string]string{"128": "8", "256": "2"}, usage{4, 10})
	f(1, map[string]string{"128": "0", "256": "5"}, usage{4, 5})
	f(90, nil, usage{})
	f(90, map[string]string{"128": "0"}, usage{})
	f(100, map[string]string{"8064": "1099511627776"}, usage{1 << 62, 1 << 40})

	// Integers are exact while a step is narrower than one.
	for value := range int64(184) {
		if got := valueOf(int64(stepOf(float64(value)))); got != value {
			t.Errorf("got %d, want %d", got, value)
		}
	}
	for _, value := range []float64{0, 0.3, 1000, 12345678, 1 << 40} {
		if got := float64(valueOf(int64(stepOf(value)))); got < value-1 || got > value*1.0055 {
			t.Errorf("got %f of %f, want at most 0.55 %% more", got, value)
		}
	}
}

// TestAnswers has invalid answers.
func TestAnswers(t *testing.T) {
	f := func(answer any, want string) {
		t.Helper()
		_, err := serve(t, func(string) any { return answer }).source(t).fetch(t.Context(), "q")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100v: got error %v, want one with %s", answer, err, want)
		}
	}
	f(422, `got code 422 and "{\"status\":\"error\",\"errorType\":\"execution\",\"error\":\"too many samples\"}`)
	f(404, "the server has no /api/v1/query (code 404), want the HTTP API of Prometheus")
	f("", "want JSON")
	f("[]", "want JSON")
	f("{}", `got an answer with status "" and result type "", want success and vector`)
	f(`{"status":"error","data":{"resultType":"vector"}}`, `status "error"`)
	f(`{"status":"success","data":{"resultType":"matrix"}}`, `result type "matrix"`)
	for _, step := range []string{"", "a", "1.5", "-2", "+Inf", "8065"} {
		f(vector(map[string]string{step: "1"}), fmt.Sprintf("got step %q, want an integer from -1 to 8064", step))
	}
	for _, samples := range []string{"", "a", "-1", "NaN", "+Inf", "1099511627777"} {
		f(vector(map[string]string{"1": samples}), fmt.Sprintf("got %q samples, want a number from 0 to 1099511627776", samples))
	}
	f(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"v":"1"},"value":[1,2]}]}}`, `got "" samples`)
	f(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"v":"1"},"value":null}]}}`, `got "" samples`)
	f(vector(nil)+strings.Repeat(" ", answerMax), "got an answer of more than 1048576 bytes")
}

// TestResultsMax checks answers with one result less than the limit, as many, and one more.
func TestResultsMax(t *testing.T) {
	for n, want := range map[int]string{resultsMax - 1: "", resultsMax: "", resultsMax + 1: "got 8067 results, want at most 8066"} {
		text := `{"status":"success","data":{"resultType":"vector","result":[` +
			strings.Repeat(`{"metric":{"v":"1"},"value":[1,"1"]},`, n-1) + `{"metric":{"v":"1"},"value":[1,"1"]}]}}`
		u, err := serve(t, func(string) any { return text }).source(t).fetch(t.Context(), "q")
		if want == "" && (err != nil || u.samples != int64(n)) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d results: got %v, %v, want %s", n, u, err, want)
		}
	}
}

// TestCached checks that answers and failures are cached.
func TestCached(t *testing.T) {
	fails := true
	p := serve(t, func(string) any {
		if fails {
			return 503
		}
		return usage{7, 30}
	})
	s := p.source(t)
	for range 3 {
		if _, err := s.ask(t.Context(), "q"); err == nil {
			t.Error("got no error")
		}
	}
	if got := len(p.queries()); got != 1 {
		t.Errorf("got %d queries, want 1", got)
	}
	s.cache.RemoveAll(func(any) bool { return true })
	fails = false
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if u, err := s.ask(t.Context(), "q"); err != nil || u.value != 7 {
				t.Errorf("got %v, %v", u, err)
			}
		})
	}
	all.Wait()
	if got := len(p.queries()); got != 1 {
		t.Errorf("got %d queries, want 1", got)
	}
}

// TestSlow has a source that answers after the call has ended. The pod gets no requests; the
// answer is cached for the next pod.
func TestSlow(t *testing.T) {
	hold := make(chan struct{})
	p := serve(t, func(string) any { <-hold; return usage{100, 30} })
	chain := admissiontest.MustChain(t, admissiontest.Hurried(Plugin()), p.config(""))
	ctx := admissiontest.WithTime(t.Context(), 2*time.Second)
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body("a", "")); err != nil {
		t.Fatal(err)
	}
	if outcome, err := chain.Review(ctx, review, admission.Mutate); err != nil || outcome != admission.OutcomeAllowed {
		t.Errorf("got outcome %v and %v, want the pod allowed in time", outcome, err)
	}
	close(hold)
	check(t, chain, "a", "", `{"requests":{"cpu":"100m","memory":"100"}}`,
		"cpu, memory request for init container i0; cpu, memory request for container c0")
	if got := len(p.queries()); got != 2 {
		t.Errorf("got %d queries, want 2", got)
	}
}

// TestImages has pods with many images.
func TestImages(t *testing.T) {
	for _, n := range []int{imagesMax - 1, imagesMax, imagesMax + 1} {
		p := serve(t, func(string) any { return usage{100, 30} })
		var all []string
		for i := range n {
			all = append(all, container("c", fmt.Sprint("i", i), ""))
		}
		object := `{"spec":{"containers":[` + strings.Join(append(all, all...), ",") + `]}}`
		got := string(admissiontest.Answer(t, admissiontest.MustChain(t, Plugin(), p.config("")), admission.Mutate,
			admissiontest.Body(codec.Create, pods, object)))
		want := min(n, imagesMax)
		if filled := strings.Count(got, `"requests"`); filled != 2*want {
			t.Errorf("%d images: got %d containers with requests, want %d", n, filled, 2*want)
		}
		if got := len(p.queries()); got != 2*want {
			t.Errorf("%d images: got %d queries, want %d", n, got, 2*want)
		}
	}
}

// TestImageMax has names of images of the maximum length, and longer ones.
func TestImageMax(t *testing.T) {
	p := serve(t, func(string) any { return usage{100, 30} })
	chain := admissiontest.MustChain(t, Plugin(), p.config(""))
	for n, want := range map[int]admission.Outcome{imageMax - 1: admission.OutcomePatched, imageMax: admission.OutcomePatched,
		imageMax + 1: admission.OutcomeAllowed} {
		object := `{"spec":{"containers":[` + container("c", strings.Repeat("i", n), "") + `]}}`
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, admissiontest.Body(codec.Create, pods, object))
	}
	var long strings.Builder // names that are too long do not count towards the limit of images
	for i := range imagesMax {
		long.WriteString(container("c", fmt.Sprintf("%0*d", imageMax+1, i), "") + ",")
	}
	admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomePatched,
		admissiontest.Body(codec.Create, pods, `{"spec":{"containers":[`+long.String()+container("c", "a", "")+`]}}`))
}

// full returns a source with the maximum number of queries under way.
func full(t *testing.T) *source {
	t.Helper()
	s, err := newSource(&configuration{Source: jsonclient.Config{URL: "http://127.0.0.1:1"}}, metrics.NewSet())
	if err == nil {
		err = s.queries.Acquire(t.Context(), queriesMax)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEnds has a review whose context has ended before the containers are read: nothing is
// asked.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := full(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.ask(ctx, "q"); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want that it was canceled", err)
		}
		time.Sleep(2 * queryTimeout)
		if got := s.series.failed.Get(); got != 0 {
			t.Errorf("got %d queries, want none", got)
		}
	})
}

// TestLooksAtContext has pods with many containers, with a context that has ended and one
// that has not.
func TestLooksAtContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	decoded := func(n int) *codec.Review {
		review := new(codec.Review)
		object := `{"spec":{"containers":[` + strings.TrimSuffix(strings.Repeat(container("c", "a", "")+",", n), ",") + `]}}`
		if err := review.Decode(admissiontest.Body(codec.Create, pods, object)); err != nil {
			t.Fatal(err)
		}
		return review
	}
	review := decoded(checkEach)
	known, err := missing(t.Context(), review)
	if err != nil || len(known) != 2 {
		t.Fatalf("got %v and error %v, want two resources of the image", known, err)
	}
	for _, e := range known {
		e.quantity = "1"
	}
	last := codec.Index(checkEach - 1)
	if result := fill(t.Context(), review, known); result.Err != nil ||
		!review.Object.Get("spec", "containers", last, "resources", "requests", resourceCPU).EqualString("1") {
		t.Errorf("got error %v, want the requests of all containers", result.Err)
	}
	for n, want := range map[int]error{checkEach - 1: nil, checkEach: context.Canceled} {
		review := decoded(n)
		if _, err := missing(ctx, review); !errors.Is(err, want) {
			t.Errorf("%d containers: got error %v, want %v", n, err, want)
		}
		if want != nil {
			if got := (&plugin{}).admit(ctx, review).Err; !errors.Is(got, want) {
				t.Errorf("%d containers: got error %v, want %v", n, got, want)
			}
		}
		if got := fill(ctx, review, nil).Err; !errors.Is(got, want) {
			t.Errorf("%d containers: got error %v, want %v", n, got, want)
		}
	}
}

// TestReserve checks how long a pod waits for an answer: a tenth of its time is reserved, at
// most half a second. The query continues.
func TestReserve(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{
		time.Second: 900 * time.Millisecond, 5 * time.Second: 4500 * time.Millisecond, 8 * time.Second: 7500 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := full(t)
			ctx, cancel := context.WithTimeout(t.Context(), given)
			defer cancel()
			began, w := time.Now(), wanted{resourceCPU, "a"}
			(&plugin{s}).estimate(ctx, "n", map[wanted]*estimate{w: {wanted: w}})
			if got := time.Since(began); got != want {
				t.Errorf("%v: got %v, want %v", given, got, want)
			}
			q := question{resourceCPU, "a", true, "n", week}
			if _, err := s.ask(t.Context(), q.query(s.resolution)); !errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), "10 queries wait for an answer") {
				t.Errorf("got error %v, want that the query waited", err)
			}
			if got := time.Since(began); got != queryTimeout {
				t.Errorf("got %v, want %v", got, queryTimeout)
			}
		})
	}
}

// TestQuestionsMax has one pod with the maximum number of concurrent questions.
func TestQuestionsMax(t *testing.T) {
	var now, most atomic.Int64
	p := serve(t, func(string) any {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(10 * time.Millisecond) // wait for the others
		return usage{100, 30}
	})
	var all []string
	for i := range 2 * questionsMax {
		all = append(all, container("c", fmt.Sprint("i", i), ""))
	}
	chain := admissiontest.MustChain(t, Plugin(), p.config(""))
	admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomePatched,
		admissiontest.Body(codec.Create, pods, `{"spec":{"containers":[`+strings.Join(all, ",")+`]}}`))
	if got := most.Load(); got > questionsMax {
		t.Errorf("got %d questions at the same time, want at most %d", got, questionsMax)
	}
}

// TestQueriesMax has the maximum number of concurrent queries.
func TestQueriesMax(t *testing.T) {
	arrived, hold := make(chan struct{}, 2*queriesMax), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-hold
		fmt.Fprint(w, vector(nil))
	}))
	t.Cleanup(server.Close)
	s := (&prometheus{Server: server}).source(t)
	var all sync.WaitGroup
	for i := range queriesMax {
		all.Go(func() { _, _ = s.ask(t.Context(), fmt.Sprint(i)) })
	}
	for range queriesMax {
		<-arrived
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.ask(ctx, "one more"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want that it waits", err)
	}
	if len(arrived) != 0 {
		t.Errorf("got more than %d queries", queriesMax)
	}
	close(hold)
	all.Wait()
	if _, err := s.ask(t.Context(), "one more"); err != nil {
		t.Error(err)
	}
}
