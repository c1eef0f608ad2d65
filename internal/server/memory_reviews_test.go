package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/memory"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestReviewMemoryNeeds checks how much memory is reserved for a body.
func TestReviewMemoryNeeds(t *testing.T) {
	m := newReviewMemory(1 << 30)
	f := func(body string, want int64) {
		t.Helper()
		r, ok := m.reserve(t.Context(), []byte(body))
		if !ok || r.bytes != want || m.reserved() != want {
			t.Errorf("%d bytes: reserved %d, %d in all, want %d", len(body), r.bytes, m.reserved(), want)
		}
		if r.release(); m.reserved() != 0 {
			t.Errorf("%d bytes: %d are still reserved", len(body), m.reserved())
		}
	}
	f(strings.Repeat("{", cheapBytes-1), 0)
	f(strings.Repeat("{", cheapBytes), 0)
	f(strings.Repeat(" ", cheapBytes+1), memoryOfByte*(cheapBytes+1))
	f(strings.Repeat(" ", cheapBytes)+"{,,", memoryOfByte*(cheapBytes+3)+memoryOfObject+2*memoryOfElement)
	f(strings.Repeat("{", reviewMemoryMax/(memoryOfByte+memoryOfObject)),
		reviewMemoryMax/(memoryOfByte+memoryOfObject)*(memoryOfByte+memoryOfObject))
	f(strings.Repeat("{", reviewMemoryMax/(memoryOfByte+memoryOfObject)+1), reviewMemoryMax)
	m = newReviewMemory(1000)
	f(strings.Repeat("{", cheapBytes+1), 1000-1000/smallShare)
}

// TestReviewMemoryOfTheProcess has two large reviews. By the memory limit of the Go runtime,
// there is memory for one at a time.
func TestReviewMemoryOfTheProcess(t *testing.T) {
	const limit = 256 << 20
	t.Setenv("GOMEMLIMIT", "set") // so that the container's limit is not used
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(limit))
	started, goOn := make(chan struct{}), make(chan struct{})
	s := serve(t, "Waits", []admission.Plugin{waiting(started, goOn)})
	large, first := manyContainers(cheapBytes, "{}"), s.Open(t)
	if _, err := first.Conn.Write(servertest.Request("/validate/waits", large)); err != nil {
		t.Fatal(err)
	}
	<-started
	response, body := s.Open(t).Send(servertest.Request("/validate/waits?timeout=5s", large))
	if want := fmt.Sprintf(" of %d bytes, of which ", (limit-memory.Base)/4); response.StatusCode != http.StatusTooManyRequests ||
		!strings.Contains(string(body), want) {
		t.Errorf("got %s %s, want 429 with %q", response.Status, body, want)
	}
	close(goOn)
	if response, body := first.Receive(); response.StatusCode != http.StatusOK {
		t.Errorf("the first: got %s %s", response.Status, body)
	}
}

// TestReserveWaitsForHalf has a large review wait in vain for memory: it waits for half of
// its time.
func TestReserveWaitsForHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newReviewMemory(1000)
		_, _ = m.large.try(m.large.max)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		if _, ok := m.reserve(ctx, bytes.Repeat([]byte(" "), cheapBytes+1)); ok || time.Since(start) != 5*time.Second {
			t.Errorf("got %v in %s, want no memory in 5s", ok, time.Since(start))
		}
	})
}

// TestUnreserved has reviews that are few and short enough to get memory without a
// reservation, and others.
func TestUnreserved(t *testing.T) {
	s := newIdleServer(new(servertest.Buffer))
	s.memory = newReviewMemory(1000)
	_, _ = s.memory.large.try(s.memory.large.max) // takes all memory
	f := func(requests int64, size int, want bool) {
		t.Helper()
		s.load.requests.Store(requests)
		b := &callContext{server: s, body: make([]byte, size)}
		if got := b.GrantMemory(); got != want {
			t.Errorf("%d reviews of %d bytes: got %v", requests, size, got)
		}
	}
	f(1, unreservedBytesMax, true)
	f(1, unreservedBytesMax+1, false)
	f(2, unreservedBytesMax/2, true)
	f(2, unreservedBytesMax/2+1, false)
}

// TestGrantValues reserves memory for the values of expressions until the call ends, and each byte only
// once.
func TestGrantValues(t *testing.T) {
	const most = 2 * fewValuesMax
	m := newReviewMemory(memoryForLarge(most))
	server := &Server{memory: m}
	b := server.acquireContext(time.Now(), new(fasthttp.Args), nil, nil)
	for _, step := range []struct {
		bytes    int
		want     bool
		reserved int64
	}{{400, true, 400}, {300, true, 400}, {most - 1, true, most - 1}, {most, true, most}, {most + 1, true, most}} {
		if got := b.GrantValues(step.bytes); got != step.want || m.reserved() != step.reserved {
			t.Errorf("%d bytes: got %v, and %d reserved, want %v and %d", step.bytes, got, m.reserved(), step.want, step.reserved)
		}
	}
	m.small.max, m.small.room = 2*fewValuesMax, semaphore.NewWeighted(2*fewValuesMax)
	other := server.acquireContext(time.Now(), new(fasthttp.Args), nil, nil)
	for more := -1; more <= 1; more++ {
		if got := other.GrantValues(fewValuesMax + more); got != (more <= 0) || other.values.bytes != 0 {
			t.Errorf("%+d bytes beside those that have all: got %v, and %d of theirs", more, got, other.values.bytes)
		}
	}
	if got := other.fewValues.bytes; got != fewValuesMax {
		t.Errorf("got %d bytes of the memory for small reviews, want %d", got, fewValuesMax)
	}
	other.release()
	b.release()
	if m.reserved() != 0 {
		t.Errorf("%d bytes are reserved after the call", m.reserved())
	}
}

// memoryForLarge returns the memory of a server in which large reviews may use this many
// bytes.
func memoryForLarge(bytes int64) int64 {
	most := bytes
	for most-most/smallShare < bytes {
		most++
	}
	return most
}

// TestReviewMemoryIsBounded has large reviews reserve the maximum, less and more.
func TestReviewMemoryIsBounded(t *testing.T) {
	first := bytes.Repeat([]byte(" "), 2*cheapBytes)
	second := bytes.Repeat([]byte(" "), cheapBytes+1)
	both := int64(memoryOfByte * (len(first) + len(second)))
	for _, most := range []int64{both - 1, both, both + 1} {
		m := newReviewMemory(memoryForLarge(most))
		if m.large.max != most {
			t.Fatalf("large ones have %d bytes, want %d", m.large.max, most)
		}
		held, _ := m.reserve(t.Context(), first)
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		r, ok := m.reserve(short, second)
		cancel()
		if ok != (most >= both) {
			t.Errorf("%d of %d bytes: got %v", both, most, ok)
		}
		if ok {
			r.release()
			continue
		}
		if m.reserved() != held.bytes {
			t.Errorf("%d bytes are reserved, want %d", m.reserved(), held.bytes)
		}
		time.AfterFunc(10*time.Millisecond, held.release)
		if r, ok = m.reserve(t.Context(), second); !ok { // waits
			t.Error("does not wait")
		}
		r.release()
	}
}

// nth returns one of several callers.
func nth(i int) caller { return caller{"user", strconv.Itoa(i)} }

// TestSmallReviewMemoryIsBounded has small reviews of different callers reserve the memory for small reviews,
// less and more, while one large review has the rest and another one waits. As much as the last one takes is left.
func TestSmallReviewMemoryIsBounded(t *testing.T) {
	const count = 3
	small := bytes.Repeat([]byte(" "), 1000)
	needs := int64(memoryOfByte * len(small))
	for _, own := range []int64{(count+1)*needs - 1, (count + 1) * needs, (count+1)*needs + 1} {
		m := newReviewMemory(own * smallShare)
		if m.small.max != own || m.large.max != own*smallShare-own {
			t.Fatalf("small ones have %d bytes, the rest is %d, want %d of %d", m.small.max, m.large.max, own, own*smallShare)
		}
		held, _ := m.large.try(m.large.max)
		waited := m.wait(t)
		for i := range int64(count + 1) {
			r, ok := m.try(nth(int(i)), small)
			if want := (i+2)*needs <= own; ok != want {
				t.Errorf("%d bytes, %d are reserved for small ones: got %v, want %v", own, i*needs, ok, want)
			}
			if ok {
				defer r.release()
			}
		}
		held.release()
		<-waited
	}
}

// TestCallersShareMemory has one caller take all memory that it gets, and others after it. Each gets as much as is
// left then, so all that come have some. What is returned is there for others.
func TestCallersShareMemory(t *testing.T) {
	const most = 1 << 10
	p := &memoryPart{max: most, room: semaphore.NewWeighted(most)}
	taken := make(map[int][]reservation)
	for i, want := range []int64{most / 2, most / 4, most / 8, most / 16} {
		var got int64
		for {
			r, ok := p.tryFor(nth(i), 1)
			if !ok {
				break
			}
			got += r.bytes
			taken[i] = append(taken[i], r)
		}
		if got != want {
			t.Errorf("caller %d: got %d of %d bytes, want %d", i, got, most, want)
		}
	}
	for i := range taken[0] {
		taken[0][i].release()
	}
	r, ok := p.tryFor(nth(1), most/8)
	if !ok {
		t.Error("got no memory that another caller has returned")
	}
	if _, ok := p.tryFor(nth(9), most); ok {
		t.Error("got as much as there is")
	}
	r.release()
	for _, all := range taken {
		for i := range all {
			all[i].release()
		}
	}
	if p.reserved.Load() != 0 || len(p.callers) != 0 {
		t.Errorf("got %d bytes, and %d callers, after all have returned theirs", p.reserved.Load(), len(p.callers))
	}
}

// TestSmallReviewsLetLargeOnesGo has small reviews take all memory, as they may. While a
// large one waits, they get no more than the memory for small reviews, so the large one gets
// the rest.
func TestSmallReviewsLetLargeOnesGo(t *testing.T) {
	small := bytes.Repeat([]byte(" "), 1000)
	needs := int64(memoryOfByte * len(small))
	m := newReviewMemory(3 * smallShare * needs)
	var all []reservation
	for {
		r, ok := m.try(nth(len(all)), small)
		if !ok {
			break
		}
		all = append(all, r)
	}
	if len(all) != 3*smallShare-1 || m.reserved() != (3*smallShare-1)*needs { // one less than there is room for
		t.Fatalf("%d have memory, %d bytes, want %d", len(all), m.reserved(), 3*smallShare-1)
	}
	waited := m.wait(t)
	for i := range all {
		isOwn := all[i].part == &m.small
		all[i].release()
		if r, ok := m.try(nth(i), small); ok != isOwn && m.large.reserved.Load() > 0 {
			t.Errorf("%d ended: another one beside a large one that waits: got %v, want %v", i+1, ok, isOwn)
		} else if ok {
			defer r.release()
		}
	}
	if got := <-waited; got != m.large.max {
		t.Errorf("the large one has %d bytes, want %d", got, m.large.max)
	}
}

// wait starts a large review that waits for all of its memory. It sends how much the review
// got, and releases it.
func (m *reviewMemory) wait(t *testing.T) <-chan int64 {
	got := make(chan int64, 1)
	go func() {
		r, _ := m.reserve(t.Context(), bytes.Repeat([]byte("{"), cheapBytes+1))
		got <- r.bytes
		r.release()
	}()
	servertest.Until(t, "a large one waits", func() bool { return !m.large.room.TryAcquire(0) })
	return got
}

// TestSmallReviewsAndLarge has a large review take all of its memory, and another one wait
// for it. A small review that needs more than most is answered; one that needs more than half
// of the memory for small reviews is not.
func TestSmallReviewsAndLarge(t *testing.T) {
	const most = 64 << 20 // so that both small ones take more than an Object retains
	started, goOn := make(chan struct{}), make(chan struct{})
	s := serve(t, "Waits,AlwaysPullImages", []admission.Plugin{waiting(started, goOn)}, func(s *setup) { s.ReviewMemoryMax = most })
	large := manyContainers(cheapBytes, "{}")
	holds, waits := s.Open(t), s.Open(t)
	if _, err := holds.Conn.Write(servertest.Request("/validate/waits", large)); err != nil {
		t.Fatal(err)
	}
	<-started
	if _, err := waits.Conn.Write(servertest.Request("/validate/waits", large)); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "both are in flight",
		func() bool { return strings.Contains(s.Get(t, "/metrics", 200), "fastadmit_requests_in_flight 2\n") })
	f := func(containers, want int) {
		t.Helper()
		body := append(manyContainers(containers, "{}"), bytes.Repeat([]byte(" "), unreservedBytesMax)...)
		if response, answer := s.Open(t).Send(servertest.Request("/mutate", body)); response.StatusCode != want {
			t.Errorf("%d containers: got %s %.300s, want %d", containers, response.Status, answer, want)
		}
	}
	fits := (most/smallShare/2-memoryOfByte*unreservedBytesMax)/(len("{},")*memoryOfByte+memoryOfObject+
		memoryOfElement) - 100 // for the envelope
	f(fits+100, http.StatusTooManyRequests)
	f(fits, http.StatusOK)
	close(goOn)
	<-started
	for _, x := range []*servertest.Exchange{holds, waits} {
		if response, _ := x.Receive(); response.StatusCode != http.StatusOK {
			t.Errorf("a large one: got %s", response.Status)
		}
	}
}

// TestReviewMemoryRefuses has a large review take all memory. Another one is told to try
// again, on a connection that stays open, and small ones are answered.
func TestReviewMemoryRefuses(t *testing.T) {
	started, goOn := make(chan struct{}), make(chan struct{})
	s := serve(t, "Waits,AlwaysPullImages", []admission.Plugin{waiting(started, goOn)}, func(s *setup) { s.ReviewMemoryMax = 1000000 })
	large := servertest.Padded(1_000_000)
	busy, x := s.Open(t), s.Open(t)
	if _, err := busy.Conn.Write(servertest.Request("/validate/waits", large)); err != nil {
		t.Fatal(err)
	}
	<-started
	for range 2 {
		response, body := x.Send(servertest.Request("/mutate?timeout=1s", large))
		if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "1" || response.Close ||
			!strings.Contains(string(body),
				"no memory for a review that may need 875000 bytes to be read, and more for what expressions and "+
					"other servers return: other reviews have reserved 875000 of 1000000 bytes, of "+
					"which 125000 are only for small reviews") {
			t.Errorf("got %s %v %s", response.Status, response.Header, body)
		}
	}
	x.Answers(false)
	metrics := s.Get(t, "/metrics", 200)
	for _, line := range []string{"fastadmit_review_memory_refusals_total 2", "fastadmit_review_memory_reserved_bytes 875000"} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %q in %s", line, metrics)
		}
	}
	if _, err := x.Conn.Write(servertest.Request("/mutate?timeout=20s", large)); err != nil { // waits
		t.Fatal(err)
	}
	close(goOn)
	if response, _ := busy.Receive(); response.StatusCode != http.StatusOK {
		t.Errorf("the one that had it: got %s", response.Status)
	}
	if response, _ := x.Receive(); response.StatusCode != http.StatusOK {
		t.Errorf("the one that waited: got %s", response.Status)
	}
	servertest.Until(t, "nothing is reserved", func() bool {
		return strings.Contains(s.Get(t, "/metrics", 200), "fastadmit_review_memory_reserved_bytes 0\n")
	})
}

// TestManySmallReviews has many concurrent reviews that are too short for a reservation, but
// need much memory. Their memory stays below the limit, the others are told to try again,
// and usual reviews are answered.
func TestManySmallReviews(t *testing.T) {
	const most, many = 32 << 20, 100
	var inside atomic.Int64
	goOn := make(chan struct{})
	greedy := admission.Plugin{
		Name: "Greedy", Rules: []admission.Rule{admission.Any()}, Mutates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: func(_ context.Context, review *codec.Review) admission.Result {
				containers := review.Object.Get("spec", "containers")
				for i := range containers.Len() {
					review.Object.SetString("Always", "spec", "containers", codec.Index(i), "imagePullPolicy")
				}
				if review.Object.Err() == nil && containers.Len() > 100 {
					inside.Add(1)
					<-goOn
				}
				return admission.Allowed()
			}}, nil
		},
	}
	s := serve(t, "Greedy", []admission.Plugin{greedy}, func(s *setup) { s.ReviewMemoryMax = most })
	small := append(manyContainers(1500, "{}"), bytes.Repeat([]byte(" "), unreservedBytesMax)...)
	m := newReviewMemory(most)
	needs := m.needs(small)
	room := m.small.max/2/needs + m.large.max/needs // half of the memory for small ones: all have one caller
	if m.small.max/2 < needs {
		t.Fatalf("a caller has %d bytes of those for small ones, one of them takes %d", m.small.max/2, needs)
	}
	answers := make(chan int, many)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range many {
		x := s.Open(t)
		go func() {
			if _, err := x.Conn.Write(servertest.Request("/mutate", small)); err != nil {
				t.Error(err)
			}
			response, err := http.ReadResponse(x.Reader, nil)
			if err != nil {
				t.Error(err)
				answers <- 0
				return
			}
			answers <- response.StatusCode
		}()
	}
	for range many - room {
		select {
		case code := <-answers:
			if code != http.StatusTooManyRequests {
				t.Errorf("one too many: got %d", code)
			}
		case <-time.After(5 * time.Minute):
			close(goOn)
			t.Fatalf("%d have memory, want %d", inside.Load(), room)
		}
	}
	servertest.Until(t, "the others wait", func() bool { return inside.Load() == room })
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > most+many*2*cheapBytes {
		t.Errorf("%d bytes are in use, want at most %d and the bodies", grown, most)
	}
	s.Open(t).Answers(false)
	close(goOn)
	for range room {
		if code := <-answers; code != http.StatusOK {
			t.Errorf("one for which there was memory: got %d", code)
		}
	}
	servertest.Until(t, "nothing is reserved", func() bool {
		return strings.Contains(s.Get(t, "/metrics", 200), "fastadmit_review_memory_reserved_bytes 0\n")
	})
}

// manyContainers returns the creation of a Pod with n containers.
func manyContainers(n int, container string) []byte {
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":` +
		podReview(`{"spec":{"containers":[`+strings.TrimSuffix(strings.Repeat(container+",", n), ",")+`]}}`) + `}`)
}

// TestAnswerMemory checks that large answers reserve memory, and release it.
func TestAnswerMemory(t *testing.T) {
	s := newIdleServer(new(servertest.Buffer))
	answer := func(uid int) (bytes int, own bool) {
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(fmt.Appendf(nil,
			`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":%q,"operation":"CREATE"}}`,
			strings.Repeat("u", uid))); err != nil {
			t.Fatal(err)
		}
		ctx := new(fasthttp.RequestCtx)
		s.answer(ctx, new(conn), review, new(reservation))
		return len(review.AppendResponse(nil)), ctx.Response.IsBodyStream()
	}
	envelope, _ := answer(1)
	envelope--
	for _, want := range []int{envelope + 1, cheapBytes - 1, cheapBytes, cheapBytes + 1} {
		if got, own := answer(want - envelope); got != want || own != (want > cheapBytes) {
			t.Errorf("got %d bytes with memory of their own: %v, want %d with: %v", got, own, want, want > cheapBytes)
		}
	}
}

// TestLargeAnswer reads a large patch over a connection that stays open, and closes a
// connection before another one is sent.
func TestLargeAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("large answers take long; TestUnreadAnswers has them too")
	}
	s := serve(t, "AlwaysPullImages", nil)
	const n = 100_000
	body := manyContainers(n, `{"name":"a"}`)
	x := s.Open(t)
	for range 2 {
		response, answer := x.Send(servertest.Request("/mutate", body))
		var review struct{ Response struct{ Patch []byte } }
		if err := json.Unmarshal(answer, &review); err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(review.Response.Patch, []byte(`{"op":"add"`)); response.StatusCode != http.StatusOK || got != n {
			t.Errorf("got %s with %d operations, want %d", response.Status, got, n)
		}
		x.Answers(false)
	}
	const patched = 2 + 2 + 1 // x.answers has a patch as well
	gone := s.Open(t)
	// So that the kernel does not buffer all of it.
	if err := gone.Conn.(*tls.Conn).NetConn().(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Conn.Write(servertest.Request("/mutate", body)); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "the answer is on its way", func() bool {
		return strings.Contains(s.Get(t, "/metrics", 200),
			`fastadmit_plugin_decisions_total{plugin="AlwaysPullImages",phase="mutate",decision="patched"} `+strconv.Itoa(patched))
	})
	servertest.Until(t, "the review is over", func() bool {
		return strings.Contains(s.Get(t, "/metrics", 200), "fastadmit_request_bytes_in_flight 0\n")
	})
	if metrics := s.Get(t, "/metrics", 200); strings.Contains(metrics, "fastadmit_review_memory_reserved_bytes 0\n") {
		t.Error("nothing is reserved for an answer that nobody reads")
	}
	gone.Conn.Close()
	servertest.Until(t, "nothing is reserved", func() bool {
		return strings.Contains(s.Get(t, "/metrics", 200), "fastadmit_review_memory_reserved_bytes 0\n")
	})
}

// TestTooLargeObject checks that the review is denied and counted.
func TestTooLargeObject(t *testing.T) {
	s := serve(t, "AlwaysPullImages", nil)
	_, answer := s.Open(t).Send(servertest.Request("/mutate", manyContainers(200_000, `{"name":"a"}`)))
	for _, part := range []string{`"allowed":false`, `"code":413`, `"reason":"RequestEntityTooLarge"`,
		"send one with fewer or shorter lists and strings in it"} {
		if !strings.Contains(string(answer), part) {
			t.Errorf("no %s in %.1000s", part, answer)
		}
	}
	if metrics := s.Get(t, "/metrics", 200); !strings.Contains(metrics, "fastadmit_too_large_objects_total 1\n") {
		t.Errorf("not counted: %s", metrics)
	}
}

// TestIdleConnectionsKeepNothing sends large reviews with large answers over many
// connections that stay open.
func TestIdleConnectionsKeepNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("large answers take long; TestServeConcurrently has many connections")
	}
	s := serve(t, "AlwaysPullImages", nil)
	raw := servertest.Request("/mutate", manyContainers(100_000, `{"name":"a","image":"`+strings.Repeat("x", 64)+`"}`))
	live := func() int64 { return int64(admissiontest.LiveHeap()) }
	before := live()
	const connections = 6
	var open []*servertest.Exchange
	for range connections {
		x := s.Open(t)
		if response, answer := x.Send(raw); response.StatusCode != http.StatusOK || len(answer) < 10_000_000 {
			t.Fatalf("got %s, %d bytes", response.Status, len(answer))
		}
		open = append(open, x)
	}
	var after int64
	servertest.Until(t, "large buffers are gone", func() bool {
		after = live()
		return after-before < int64(len(raw))
	})
	for _, x := range open {
		x.Answers(false)
	}
	t.Logf("%d connections keep %d bytes", connections, after-before)
}

// TestCallerWithLongName has a user whose name takes much memory to read, which the server asks for the name of the
// caller.
func TestCallerWithLongName(t *testing.T) {
	s := newIdleServer(new(servertest.Buffer))
	s.memory = newReviewMemory(160 << 20)
	s.load.requests.Store(100)
	body := fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE",`+
		`"kind":{"version":"v1","kind":"Pod"},"resource":{"version":"v1","resource":"pods"},"namespace":"ns","object":{},`+
		`"userInfo":{"username":"%s"}}}`, strings.Repeat(`\n`, 25<<10))
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	b := s.acquireContext(time.Now(), new(fasthttp.Args), review, body)
	review.SetContext(b)
	for range 5 {
		if got := len(review.Username()); got != 25<<10 {
			t.Errorf("got a name of %d bytes", got)
		}
	}
	needs := s.memory.needs(body)
	if err := review.Err(); err != nil || s.memory.reserved() != needs {
		t.Errorf("got %v, %d bytes reserved, want those of one review, %d", err, s.memory.reserved(), needs)
	}
	if b.release(); s.memory.reserved() != 0 {
		t.Errorf("got %d bytes reserved after the review", s.memory.reserved())
	}
}

// TestLenderOutlives lends memory for the answer to a call that has ended. It counts for the caller of that call.
func TestLenderOutlives(t *testing.T) {
	s := &Server{memory: newReviewMemory(160 << 20)}
	review := codec.Acquire()
	body := []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE",` +
		`"kind":{"version":"v1","kind":"Pod"},"resource":{"version":"v1","resource":"pods"},"namespace":"ns","object":{},` +
		`"userInfo":{"username":"eve"}}}`)
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	b := s.acquireContext(time.Now(), new(fasthttp.Args), review, body)
	l := b.Value(codec.LenderKey{}).(codec.MemoryLender)
	b.release()
	review.Release()
	clear(body)
	giveBack, ok := l.Lend(t.Context(), 1000, false)
	if c := s.memory.small.callers[caller{"eve", "ns"}]; !ok || c == nil || c.bytes != 1000 {
		t.Errorf("got %v, %+v", ok, s.memory.small.callers)
	}
	if giveBack(); s.memory.reserved() != 0 {
		t.Errorf("got %d bytes reserved", s.memory.reserved())
	}
}

// TestLender lends memory of reviews to plugins, for answers of other servers.
func TestLender(t *testing.T) {
	synctest.Test(t, testLender)
}

func testLender(t *testing.T) {
	s := &Server{memory: newReviewMemory(160 << 20)}
	review := codec.Acquire()
	defer review.Release()
	b := s.acquireContext(time.Now(), new(fasthttp.Args), review, nil)
	b.deadline = time.Now().Add(100 * time.Millisecond)
	l := b.Value(codec.LenderKey{}).(codec.MemoryLender)
	if first, ok := l.Lend(b, 1, false); !ok || s.memory.small.reserved.Load() != 1 {
		t.Error("got no memory of small reviews for a small answer")
	} else if first(); s.memory.reserved() != 0 {
		t.Errorf("got %d bytes reserved", s.memory.reserved())
	}
	large, ok := l.Lend(b, s.memory.large.max+1, false)
	if !ok || s.memory.large.reserved.Load() != s.memory.large.max {
		t.Errorf("got %v, %d bytes reserved", ok, s.memory.large.reserved.Load())
	}
	if _, ok := l.Lend(b, 1<<20, false); ok {
		t.Error("got memory that another one has")
	}
	if _, ok := l.Lend(b, 1<<20, true); ok || b.Err() != nil {
		t.Errorf("got %v, %v, want to wait for half of the time", ok, b.Err())
	}
	if !l.Keep(1000) || l.Keep(1<<20) {
		t.Error("kept what there is no memory for")
	}
	if b.release(); s.memory.small.reserved.Load() != 0 || b.Value(codec.LenderKey{}) != nil {
		t.Errorf("got %d bytes reserved after the review", s.memory.small.reserved.Load())
	}
	if large(); s.memory.reserved() != 0 {
		t.Errorf("got %d bytes reserved", s.memory.reserved())
	}
}

// TestLenderOfLarge checks that a review does not wait for more memory while it has memory for which
// others wait.
func TestLenderOfLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{memory: newReviewMemory(160 << 20)}
		review := codec.Acquire()
		defer review.Release()
		b := s.acquireContext(time.Now(), new(fasthttp.Args), review, make([]byte, cheapBytes+1))
		defer b.release()
		if !s.reserve(b) {
			t.Fatal("no memory")
		}
		start := time.Now()
		if _, ok := b.Value(codec.LenderKey{}).(codec.MemoryLender).Lend(b, s.memory.large.max, true); ok || time.Since(start) > 0 {
			t.Errorf("got %v after %s, want none at once", ok, time.Since(start))
		}
	})
}
