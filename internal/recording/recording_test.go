package recording

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func options(t testing.TB) *Options {
	t.Helper()
	return &Options{
		Dir: filepath.Join(t.TempDir(), "recordings"), Sample: 1, Rate: 1_000_000, FilesMax: 1000, BytesMax: 64 << 20, AgeMax: time.Hour,
		Log: slog.New(slog.DiscardHandler), Metrics: metrics.NewSet(),
	}
}

// take answers a review and records it.
func take(t testing.TB, r *Recorder, decision Decision, body []byte) {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	review.Response.Allowed = decision == Allowed
	if decision == Denied {
		review.Response.Status = codec.Status{Code: 403, Message: "no"}
	}
	r.Take(&Answer{Endpoint: "validate", Decision: decision, Plugin: "P"}, review, body)
}

// names returns the names of the recordings in a folder, the oldest first.
func names(t testing.TB, dir string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+ReviewExtension))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ReviewExtension)
		if _, err := os.Stat(name + AnswerExtension); err != nil {
			t.Errorf("got a review without its answer: %v", err)
		}
		all = append(all, name)
	}
	return all
}

func read(t testing.TB, name string) (review []byte, answer Answer) {
	t.Helper()
	review, err := os.ReadFile(name + ReviewExtension)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name + AnswerExtension)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatal(err)
	}
	return review, answer
}

func TestTake(t *testing.T) {
	o := options(t)
	r := New(o)
	pod := corpus.MustRead("pods-delete-v1-1.json")
	body := slices.Clone(pod)
	take(t, r, Denied, body)
	clear(body) // the caller reuses it
	take(t, r, Allowed, corpus.MustRead("pods-delete-v1-1.json"))
	take(t, r, Failed, corpus.MustRead("pods-delete-v1-1.json"))
	r.Close()
	all := names(t, o.Dir)
	if len(all) != 3 {
		t.Fatalf("got %d recordings, want 3", len(all))
	}
	for i, want := range []Decision{Denied, Allowed, Failed} {
		if !strings.HasSuffix(all[i], "-pods-delete."+string(want)) {
			t.Errorf("got the name %s, want one that ends in -pods-delete.%s", all[i], want)
		}
		review, answer := read(t, all[i])
		if i == 0 && string(review) != string(pod) {
			t.Errorf("got another review than the one that was taken:\n%s", review)
		}
		if answer.Decision != want || answer.Plugin != "P" || answer.Endpoint != "validate" || answer.Time.IsZero() {
			t.Errorf("got the answer %+v", answer)
		}
		if hasReview := len(answer.Review) > 0; hasReview == (want == Failed) {
			t.Errorf("%s: got the response %s", want, answer.Review)
		}
	}
}

// TestBounds writes one recording fewer than each bound allows, as many, and one more.
func TestBounds(t *testing.T) {
	body := corpus.MustRead("pods-delete-v1-1.json")
	each := roundedUp(int64(len(body))) + roundedUp(1)
	f := func(change func(o *Options), n, want int) {
		t.Helper()
		o := options(t)
		change(o)
		r := New(o)
		for range n {
			take(t, r, Denied, body)
		}
		r.Close()
		all := names(t, o.Dir)
		if len(all) != want {
			t.Errorf("%d reviews: got %d recordings, want %d", n, len(all), want)
		}
		if len(all) > 0 && !strings.Contains(all[len(all)-1], fmt.Sprintf("-%d-pods", n)) {
			t.Errorf("%d reviews: got %s as the newest", n, all[len(all)-1])
		}
	}
	files := func(o *Options) { o.FilesMax = 3 }
	f(files, 2, 2)
	f(files, 3, 3)
	f(files, 4, 3)
	bytes := func(o *Options) { o.BytesMax = 3 * each }
	f(bytes, 2, 2)
	f(bytes, 3, 3)
	f(bytes, 4, 3)
	f(func(o *Options) { o.BytesMax = each - 1 }, 2, 0)
}

func TestChoice(t *testing.T) {
	pod, node := corpus.MustRead("pods-create-v1-1.json"), corpus.MustRead("nodes-create-v1-1.json")
	f := func(change func(o *Options), decision Decision, n, want int, reason string) {
		t.Helper()
		o := options(t)
		change(o)
		r := New(o)
		for i := range n {
			body := pod
			if i%2 == 1 {
				body = node
			}
			take(t, r, decision, body)
		}
		r.Close()
		if got := len(names(t, o.Dir)); got != want {
			t.Errorf("%d %s reviews: got %d recordings, want %d", n, decision, got, want)
		}
		if reason != "" {
			if got := o.Metrics.GetOrCreateCounter(`fastadmit_recordings_dropped_total{reason="` + reason + `"}`).Get(); got == 0 {
				t.Errorf("got no drop by %s", reason)
			}
		}
	}
	f(func(o *Options) { o.Sample = 10 }, Allowed, 30, 3, "")
	f(func(o *Options) { o.Sample = 10 }, Denied, 30, 30, "")
	f(func(o *Options) { o.Sample = 0 }, Allowed, 30, 0, "")
	f(func(o *Options) { o.Resources = []string{"nodes", "pods/exec", "pods.example.com"} }, Denied, 30, 15, "")
	o := options(t)
	o.Rate = 3
	r := New(o)
	for range 30 {
		take(t, r, Denied, pod)
	}
	r.Close()
	if got := len(names(t, o.Dir)); got < 3 || got > 6 { // a second may end meanwhile
		t.Errorf("with 3 a second: got %d recordings", got)
	}
}

// TestBrokenDisk puts a file in the place of the folder, and then removes it.
func TestBrokenDisk(t *testing.T) {
	o := options(t)
	if err := os.WriteFile(o.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := New(o)
	defer r.Close()
	dropped := o.Metrics.GetOrCreateCounter(`fastadmit_recordings_dropped_total{reason="disk"}`)
	take(t, r, Denied, corpus.MustRead("pods-delete-v1-1.json"))
	await(t, func() bool { return dropped.Get() == 1 })
	if err := os.Remove(o.Dir); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool {
		take(t, r, Denied, corpus.MustRead("pods-delete-v1-1.json"))
		return r.counted.written.Get() > 0
	})
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain")
		}
	}
}

// TestFolder tests that other files stay, that old recordings and unfinished files are removed, and
// that recordings of another process are counted.
func TestFolder(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	file := func(name string, age time.Duration) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, name), now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	stamp := func(age time.Duration) string { return now.Add(-age).UTC().Format(timeFormat) }
	old := stamp(2*time.Hour) + "-a-1-pods-create.denied"
	young := stamp(time.Minute) + "-b-1-pods-create.denied"
	for _, name := range []string{
		old + ReviewExtension, old + AnswerExtension, young + ReviewExtension, young + AnswerExtension,
		"mine.json", stamp(2*time.Hour) + "-a-1-pods-create.txt", unfinished + "fresh",
	} {
		file(name, 0)
	}
	file(unfinished+"stale", 2*scanEach)
	f := folder{dir: dir, filesMax: 10, bytesMax: 1 << 20, ageMax: time.Hour}
	if err := f.scan(now); err != nil {
		t.Fatal(err)
	}
	if f.files.Load() != 2 || f.bytes.Load() != 4*blockBytes {
		t.Errorf("got %d recordings of %d bytes, want 2 of 16384", f.files.Load(), f.bytes.Load())
	}
	f.makeRoom(0, now)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 5 || f.files.Load() != 1 {
		t.Errorf("got the files %v", entries)
	}
}

// TestRedact tests that secrets are replaced, and nothing else.
func TestRedact(t *testing.T) {
	f := func(resource, userInfo, object, wantUser, wantObject string, leftOut ...string) {
		t.Helper()
		review := func(user, object string) string {
			return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u",` +
				`"resource":{"group":"","version":"v1","resource":"` +
				resource + `"},"operation":"UPDATE","userInfo":` + user + `,"object":` + object + `,"oldObject":null}}`
		}
		got, fields, err := Redact([]byte(review(userInfo, object)))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != review(wantUser, wantObject) {
			t.Errorf("got  %s\nwant %s", got, review(wantUser, wantObject))
		}
		if !slices.Equal(fields, leftOut) {
			t.Errorf("got %q as left out, want %q", fields, leftOut)
		}
	}
	f("pods", `{"username":"u"}`, `{"kind":"Pod","data":{"a":"b"}}`, `{"username":"u"}`, `{"kind":"Pod","data":{"a":"b"}}`)
	f("pods", `{"extra":{"authentication.kubernetes.io/node-name":["n"],"token":["s3cret","x"]}}`, `{}`,
		`{"extra":{"authentication.kubernetes.io/node-name":["n"],"token":["",""]}}`, `{}`, "request.userInfo.extra.token")
	f("secrets", `{}`,
		`{"kind":"Secret","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"s3cret","a":"b"}},`+
			`"data":{"a.b":"czNjcmV0","":"czNjcmV0","e":""},"stringData":{"\u0061":"s3cret"},"type":"t"}`, `{}`,
		`{"kind":"Secret","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"","a":"b"}},`+
			`"data":{"a.b":"","":"","e":""},"stringData":{"a":""},"type":"t"}`,
		"request.object.data.a.b", "request.object.data.", "request.object.stringData.a",
		"request.object.metadata.annotations.kubectl.kubernetes.io/last-applied-configuration")
	f("serviceaccounts", `{}`, `{"kind":"TokenRequest","status":{"token":"s3cret"}}`, `{}`,
		`{"kind":"TokenRequest","status":{"token":""}}`, "request.object.status.token")
	f("tokenreviews", `{}`, `{"kind":"TokenReview","spec":{"token":"s3cret"}}`, `{}`, `{"kind":"TokenReview","spec":{"token":""}}`,
		"request.object.spec.token")
	f("pods", `{}`, `{"kind":"PodExecOptions","command":["mysql","-ps3cret"]}`, `{}`,
		`{"kind":"PodExecOptions","command":["mysql",""]}`, "request.object.command")
	f("services", `{}`, `{"kind":"ServiceProxyOptions","path":"/a?token=s3cret"}`, `{}`, `{"kind":"ServiceProxyOptions","path":"/a"}`,
		"request.object.path")
}

// TestSecrets records each review of the corpus that has secrets, with a patch that contains them, too.
func TestSecrets(t *testing.T) {
	o := options(t)
	r := New(o)
	body := corpus.MustRead("secrets-create-v1-1.json")
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	secrets := make([]string, 0, 4)
	for _, value := range review.Object.Get("data").Members() {
		secrets = append(secrets, value.String())
	}
	if len(secrets) == 0 {
		t.Fatal("the Secret of the corpus has no data")
	}
	review.Response.Allowed, review.Response.Patch = true, []byte(`[{"op":"add","path":"/data/x","value":"czNjcmV0"}]`)
	r.Take(&Answer{Endpoint: "mutate", Decision: Allowed}, review, body)
	r.Close()
	text, answer := read(t, names(t, o.Dir)[0])
	for _, secret := range secrets {
		if strings.Contains(string(text), secret) {
			t.Errorf("got the value %q in the recording", secret)
		}
	}
	if len(answer.LeftOut) == 0 || strings.Contains(string(answer.Review), "patch") {
		t.Errorf("got the answer %s with %q left out", answer.Review, answer.LeftOut)
	}
}

// BenchmarkTake measures what recording costs a request, if one in a hundred allowed reviews is recorded
// and if all are. It does not include the work of the writer.
func BenchmarkTake(b *testing.B) {
	body := corpus.MustRead("pods-create-v1-1.json")
	for _, sample := range []int64{100, 1} {
		b.Run(fmt.Sprintf("sample=%d", sample), func(b *testing.B) {
			o := options(b)
			o.Sample, o.Rate = sample, 1<<countBits-2
			r := newRecorder(o)
			review := codec.Acquire()
			defer review.Release()
			if err := review.Decode(body); err != nil {
				b.Fatal(err)
			}
			review.Response.Allowed = true
			answer := Answer{Endpoint: "validate", Decision: Allowed}
			b.ReportAllocs()
			for b.Loop() {
				r.Take(&answer, review, body)
				select {
				case j := <-r.queue:
					r.release(j)
				default:
				}
			}
			if dropped := r.counted.full.Get() + r.counted.fast.Get(); dropped > 0 {
				b.Errorf("got %d reviews that were dropped", dropped)
			}
		})
	}
}
