package imagepolicywebhook

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
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
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

const pods = "v1/pods"

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// A backendServer is a backend of the plugin that records the requests.
type backendServer struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // the bodies of requests
	tries atomic.Int64
}

// serve starts a backend that answers with answer.
func serve(t testing.TB, answer http.HandlerFunc) *backendServer {
	b := new(backendServer)
	b.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the plugin gave up
		}
		b.tries.Add(1)
		b.mu.Lock()
		b.asked = append(b.asked, string(body))
		b.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer(w, r)
	}))
	t.Cleanup(b.Close)
	return b
}

// says returns a handler that answers with this status.
func says(status string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":%s}`, status)
	}
}

func (b *backendServer) kubeconfig(t testing.TB) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server:                   b.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Certificate().Raw}),
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "secret"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// chain returns a chain of the plugin that asks the backend. more are further fields of its
// configuration.
func (b *backendServer) chain(t testing.TB, more string) (*admission.Chain, *metrics.Set) {
	t.Helper()
	plugin, set := admissiontest.Hurried(Plugin()), metrics.NewSet()
	chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: {
		Config: []byte(`{"imagePolicy":{"kubeConfigFile":"k"` + more + `}}`), Kubeconfig: b.kubeconfig(t), Metrics: set,
	}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain, set
}

// image returns the creation of a pod with this image.
func image(name string) []byte {
	return admissiontest.Body(codec.Create, pods, `{"spec":{"containers":[{"image":"`+name+`"}]}}`)
}

// under returns an update of a subresource of a pod.
func under(subresource, object string) []byte {
	body := admissiontest.UpdateBody(pods, object, `{}`)
	return bytes.Replace(body, []byte(`"operation":`), []byte(`"subResource":"`+subresource+`","operation":`), 1)
}

// message returns the message of the denial, "" if the pod is allowed.
func message(t testing.TB, chain *admission.Chain, body []byte) string {
	t.Helper()
	return answered(t, chain, body).Status.Message
}

type answer struct {
	Allowed          bool
	Status           struct{ Message string }
	AuditAnnotations map[string]string
}

func answered(t testing.TB, chain *admission.Chain, body []byte) (a answer) {
	t.Helper()
	if err := json.Unmarshal(admissiontest.Answer(t, chain, admission.Validate, body), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestQuestion checks the ImageReviews that the backend gets.
func TestQuestion(t *testing.T) {
	b := serve(t, says(`{"allowed":true}`))
	chain, _ := b.chain(t, "")
	f := func(body []byte, want string) {
		t.Helper()
		b.asked = nil
		admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeAllowed, body)
		var got struct {
			APIVersion, Kind string
			Spec             json.RawMessage
		}
		if want == "" {
			if b.asked != nil {
				t.Errorf("got question %s, want none", b.asked[0])
			}
			return
		}
		if b.asked == nil {
			t.Fatalf("got no question, want %s", want)
		}
		if err := json.Unmarshal([]byte(b.asked[0]), &got); err != nil || got.Kind != "ImageReview" ||
			got.APIVersion != "imagepolicy.k8s.io/v1alpha1" || string(got.Spec) != want {
			t.Errorf("got question %s, %v, want spec\n%s", b.asked[0], err, want)
		}
	}
	create := func(object string) []byte { return admissiontest.Body(codec.Create, pods, object) }
	const namespace = `"namespace":"namespace"}`
	f(create(`{}`), `{`+namespace)
	f(create(`null`), "") // the same question again
	f(create(`{"spec":{"containers":[{"image":"a"},{"image":"b<"},null,{}],"initContainers":[{"image":"c"}],`+
		`"ephemeralContainers":[{"image":"d"}]}}`),
		`{"containers":[{"image":"a"},{"image":"b<"},{},{},{"image":"c"}],`+namespace)
	f(create(`{"spec":{"initContainers":[{"image":"c"}]}}`), `{"containers":[{"image":"c"}],`+namespace)
	f(create(`{"metadata":{"annotations":{"a.image-policy.k8s.io/b":"\u0031\n","c":"2","d.image-policy.k8s.io/":null,`+
		`"image-policy.k8s.io/e":"3"}},"spec":{"containers":[{"image":"a"}]}}`),
		`{"containers":[{"image":"a"}],"annotations":{"a.image-policy.k8s.io/b":"1\n","d.image-policy.k8s.io/":""},`+namespace)
	f(admissiontest.UpdateBody(pods, `{"spec":{"containers":[{"image":"u"}]}}`, `{"spec":{"containers":[{"image":"u"}]}}`),
		`{"containers":[{"image":"u"}],`+namespace)
	f(under("ephemeralcontainers", `{"spec":{"containers":[{"image":"a"}],"ephemeralContainers":[{"image":"e"}]}}`),
		`{"containers":[{"image":"e"}],`+namespace)
	for _, subresource := range []string{"status", "resize", "binding"} {
		f(under(subresource, `{"spec":{"containers":[{"image":"other"}]}}`), "")
	}
	for _, other := range []string{"v1/podtemplates", "example.com/v1/pods"} {
		f(admissiontest.Body(codec.Update, other, `{"spec":{"containers":[{"image":"other"}]}}`), "")
	}
	f(admissiontest.Body(codec.Delete, pods, `{"spec":{"containers":[{"image":"other"}]}}`), "")
}

// TestAnswers checks the decisions for valid and invalid answers.
func TestAnswers(t *testing.T) {
	var reply http.HandlerFunc
	b := serve(t, func(w http.ResponseWriter, r *http.Request) { reply(w, r) })
	closed, _ := b.chain(t, `,"retryBackoff":-1`)
	open, _ := b.chain(t, `,"retryBackoff":-1,"defaultAllow":true`)
	n := 0
	f := func(with http.HandlerFunc, want string, tries int64, failed bool) {
		t.Helper()
		n++
		reply = with
		body := image(fmt.Sprint("image", n))
		b.tries.Store(0)
		if got := message(t, closed, body); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := b.tries.Load(); got != tries {
			t.Errorf("%s: got %d tries, want %d", want, got, tries)
		}
		got := answered(t, open, body)
		if _, marked := got.AuditAnnotations["failed-open"]; marked != failed || failed && !got.Allowed {
			t.Errorf("%s: got %+v, want failed open %v", want, got, failed)
		}
	}
	code := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprint(w, body)
		}
	}
	f(says(`{"allowed":true}`), "", 1, false)
	f(says(`{"allowed":false}`), "is forbidden: one or more images rejected by webhook backend", 1, false)
	f(says(`{"allowed":false,"reason":"not here"}`),
		"is forbidden: image policy webhook backend denied one or more images: not here", 1, false)
	f(says(`{}`), "one or more images rejected by webhook backend", 1, false)
	f(says(`{"allowed":"yes"}`), "cannot unmarshal", 1, true)
	f(code(200, `rubbish`), "couldn't get version/kind", 1, true)
	f(code(200, ``), "0-length response", 1, true)
	f(code(200, `{"kind":"Pod","apiVersion":"v1"}`), "Pod", 1, true)
	f(code(404, `x`), "the server could not find the requested resource", 1, true)
	f(code(403, `x`), "unknown", 1, true)
	f(code(500, `x`), "an error on the server", 5, true)
	f(code(504, `x`), "unable to return a response in the time allotted", 5, true)
	f(code(302, `x`), "the server responded with the status code 302", 1, true)
	long := strings.Repeat("x", answerBytesMax)
	f(says(`{"allowed":true,"reason":"`+long+`"}`), "the answer has more than 4194304 bytes", 1, true)
	f(func(w http.ResponseWriter, _ *http.Request) { // one that does not end
		for range 3 * answerBytesMax / 1024 {
			if _, err := w.Write(make([]byte, 1024)); err != nil {
				return
			}
		}
		<-time.After(time.Minute)
	}, "the answer has more than 4194304 bytes", 1, true)
}

// TestAnnotations checks the audit annotations of an answer, and of the same answer from the cache.
func TestAnnotations(t *testing.T) {
	b := serve(t, says(`{"allowed":true,"auditAnnotations":{"image-policy":"checked","a/b":"2","":"3"}}`))
	chain, _ := b.chain(t, "")
	for range 2 {
		got := answered(t, chain, image("a")).AuditAnnotations
		if len(got) != 1 || got["image-policy"] != "checked" {
			t.Errorf("got audit annotations %q, want image-policy alone", got)
		}
	}
	if got := b.tries.Load(); got != 1 {
		t.Errorf("got %d tries, want 1", got)
	}
}

// TestCached checks which answers are cached.
func TestCached(t *testing.T) {
	f := func(more, status string, images []string, want int64) {
		t.Helper()
		b := serve(t, says(status))
		chain, set := b.chain(t, more)
		for _, i := range images {
			message(t, chain, image(i))
		}
		if got := b.tries.Load(); got != want {
			t.Errorf("%s %s: got %d tries, want %d", more, status, got, want)
		}
		var page strings.Builder
		set.WritePrometheus(&page)
		hits := fmt.Sprintf("fastadmit_image_policy_cache_hits_total %d\n", int64(len(images))-want)
		if !strings.Contains(page.String(), hits) {
			t.Errorf("got metrics\n%s\nwant %s", page.String(), hits)
		}
	}
	const allowed, denied = `{"allowed":true}`, `{"allowed":false}`
	f("", allowed, []string{"a", "a", "b", "a"}, 2)
	f("", denied, []string{"a", "a", "b", "a"}, 2)
	f(`,"allowTTL":-1`, allowed, []string{"a", "a"}, 2)
	f(`,"allowTTL":-1`, denied, []string{"a", "a"}, 1)
	f(`,"denyTTL":-1`, denied, []string{"a", "a"}, 2)
	f(`,"denyTTL":-1`, allowed, []string{"a", "a"}, 1)
	reason := func(n int) string { return `{"allowed":false,"reason":"` + strings.Repeat("x", n) + `"}` }
	f("", reason(cachedBytesMax), []string{"a", "a"}, 1)
	f("", reason(cachedBytesMax+1), []string{"a", "a"}, 2)
}

// TestShared checks that equal concurrent questions share one request.
func TestShared(t *testing.T) {
	const callers = 20
	release := make(chan struct{})
	b := serve(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		says(`{"allowed":true}`)(w, r)
	})
	chain, _ := b.chain(t, "")
	var all sync.WaitGroup
	for range callers {
		all.Go(func() { admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeAllowed, image("a")) })
	}
	for b.tries.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	all.Wait()
	if got := b.tries.Load(); got != 1 {
		t.Errorf("got %d requests, want 1", got)
	}
}

// TestNamespaceCalls creates namespaceCallsMax Pods in a namespace, with images for which the backend is
// slow. Pods of other namespaces get answers; the next Pod of the namespace does not reach the backend.
func TestNamespaceCalls(t *testing.T) {
	release := make(chan struct{})
	b := serve(t, func(w http.ResponseWriter, r *http.Request) {
		question, _ := io.ReadAll(r.Body)
		if bytes.Contains(question, []byte(`"slow`)) {
			<-release
		}
		says(`{"allowed":true}`)(w, r)
	})
	chain, _ := b.chain(t, "")
	var all sync.WaitGroup
	for i := range namespaceCallsMax {
		all.Go(func() {
			admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeAllowed, image(fmt.Sprint("slow", i)))
		})
	}
	for b.tries.Load() < namespaceCallsMax {
		time.Sleep(time.Millisecond)
	}
	if got, err := review(t, chain, image("more"), time.Second); got != admission.OutcomeDenied || err != nil {
		t.Errorf("one more of the namespace: got %s, %v, want a denial", got, err)
	}
	other := bytes.Replace(image("other"), []byte(`"namespace":"namespace"`), []byte(`"namespace":"other"`), 1)
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeAllowed, other)
	if got := b.tries.Load(); got != namespaceCallsMax+1 {
		t.Errorf("got %d requests, want %d", got, namespaceCallsMax+1)
	}
	close(release)
	all.Wait()
}

// review reviews a pod with this time until the deadline of the plugin.
func review(t testing.TB, chain *admission.Chain, body []byte, budget time.Duration) (admission.Outcome, error) {
	r := codec.Acquire()
	defer r.Release()
	if err := r.Decode(bytes.Clone(body)); err != nil {
		return 0, err
	}
	return chain.Review(admissiontest.WithTime(t.Context(), budget), r, admission.Validate)
}

// TestDeadline has a backend that does not answer: the plugin decides before the call times out.
func TestDeadline(t *testing.T) {
	ended := make(chan struct{})
	defer close(ended)
	b := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-ended:
		case <-r.Context().Done():
		}
	})
	for more, want := range map[string]admission.Outcome{
		`,"defaultAllow":true`: admission.OutcomeAllowed, "": admission.OutcomeDenied, `,"allowTTL":-1`: admission.OutcomeDenied,
	} {
		chain, _ := b.chain(t, more)
		if got, err := review(t, chain, image("a"), 500*time.Millisecond); got != want || err != nil {
			t.Errorf("%q: got %s and %v, want %s", more, got, err, want)
		}
	}
}

func TestAskUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := func(left, want time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			if got := time.Until(askUntil(ctx)); got != want {
				t.Errorf("%s left: asks for %s, want %s", left, got, want)
			}
		}
		f(time.Second, time.Second-time.Second/reserveShare)
		f(reserveShare*reserveMax, (reserveShare-1)*reserveMax)
		f(30*time.Second, 30*time.Second-reserveMax)
		if got := time.Until(askUntil(t.Context())); got != time.Minute {
			t.Errorf("without a deadline: asks for %s, want a minute", got)
		}
	})
}

// TestNoTimeToRetry has a pause that is longer than the remaining time: the plugin returns the last
// failure at once.
func TestNoTimeToRetry(t *testing.T) {
	b := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	chain, _ := b.chain(t, `,"retryBackoff":300000`)
	start := time.Now()
	if got, err := review(t, chain, image("a"), 4*time.Minute); got != admission.OutcomeDenied || err != nil {
		t.Errorf("got %s and %v, want a denial", got, err)
	}
	if waited := time.Since(start); waited > 3*time.Minute { // a plugin that waits would do so for all four minutes
		t.Errorf("got a denial after %s, want it at once", waited)
	}
	if got := b.tries.Load(); got != 1 {
		t.Errorf("got %d tries, want 1", got)
	}
}

// TestImpatient has a first caller with little time, and a second one with more time, which gets an answer.
func TestImpatient(t *testing.T) {
	var asked atomic.Bool
	b := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.CompareAndSwap(false, true) { // by the first caller
			<-r.Context().Done()
			return
		}
		says(`{"allowed":true}`)(w, r)
	})
	chain, _ := b.chain(t, "")
	var all sync.WaitGroup
	all.Go(func() {
		if got, err := review(t, chain, image("a"), 2*time.Second); got != admission.OutcomeDenied || err != nil {
			t.Errorf("got %s and %v, want a denial", got, err)
		}
	})
	for !asked.Load() {
		time.Sleep(time.Millisecond)
	}
	all.Go(func() {
		if got, err := review(t, chain, image("a"), time.Minute); got != admission.OutcomeAllowed || err != nil {
			t.Errorf("got %s and %v, want it allowed", got, err)
		}
	})
	all.Wait()
}

// TestOwned checks that a question contains no views of its review.
func TestOwned(t *testing.T) {
	body := admissiontest.Body(codec.Create, pods,
		`{"metadata":{"annotations":{"a.image-policy.k8s.io/b":"c"}},"spec":{"containers":[{"image":"abcdef"}]}}`)
	admissiontest.CheckOwned(t, body, func(r *codec.Review) any {
		q, err := questionOf(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		return q
	})
}

// TestEnded has a review whose context has ended.
func TestEnded(t *testing.T) {
	r := codec.Acquire()
	defer r.Release()
	if err := r.Decode(image("a")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if q, err := questionOf(ctx, r); err == nil {
		t.Errorf("got %s, want an error", q)
	}
}

// TestUpstream restates upstream's config_test.go.
func TestUpstream(t *testing.T) {
	const d = time.Duration(1)
	f := func(c, want imagePolicy, wantErr string) {
		t.Helper()
		c.KubeConfigFile, want.KubeConfigFile = "k", "k"
		errs := c.normalize()
		switch {
		case wantErr != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), wantErr)):
			t.Errorf("got %v, want %q", errs, wantErr)
		case wantErr == "" && (len(errs) > 0 || c != want):
			t.Errorf("got %+v, %v, want %+v", c, errs, want)
		}
	}
	f(imagePolicy{RetryBackoff: 0, AllowTTL: 0, DenyTTL: 0},
		imagePolicy{RetryBackoff: 500 * time.Millisecond, AllowTTL: 5 * time.Minute, DenyTTL: 30 * time.Second}, "")
	f(imagePolicy{RetryBackoff: -1, AllowTTL: -1, DenyTTL: -1}, imagePolicy{}, "")
	f(imagePolicy{RetryBackoff: d, AllowTTL: d, DenyTTL: d},
		imagePolicy{RetryBackoff: time.Millisecond, AllowTTL: time.Second, DenyTTL: time.Second}, "")
	f(imagePolicy{RetryBackoff: 300_000, AllowTTL: 1800, DenyTTL: 1800},
		imagePolicy{RetryBackoff: 5 * time.Minute, AllowTTL: 30 * time.Minute, DenyTTL: 30 * time.Minute}, "")
	f(imagePolicy{RetryBackoff: 300_001}, imagePolicy{},
		"imagePolicy.retryBackoff: Invalid value: 300001: valid value is between 1ns and 5m0s, got 5m0.001s")
	f(imagePolicy{RetryBackoff: -2}, imagePolicy{}, "valid value is between 1ns and 5m0s, got -2ms")
	f(imagePolicy{AllowTTL: 1801}, imagePolicy{},
		"imagePolicy.allowTTL: Invalid value: 1801: valid value is between 1s and 30m0s, got 30m1s")
	f(imagePolicy{AllowTTL: -2}, imagePolicy{}, "valid value is between 1s and 30m0s, got -2s")
	f(imagePolicy{DenyTTL: 1801}, imagePolicy{}, "imagePolicy.denyTTL: Invalid value: 1801")
	f(imagePolicy{DenyTTL: -2}, imagePolicy{}, "imagePolicy.denyTTL: Invalid value: -2")
}

// TestCertificate has a backend whose certificate is not valid for the server name in the kubeconfig.
func TestCertificate(t *testing.T) {
	b, other := serve(t, says(`{"allowed":true}`)), serve(t, says(`{"allowed":true}`))
	b.TLS.Certificates = slices.Clone(other.TLS.Certificates)
	kubeconfig := strings.Replace(string(b.kubeconfig(t)), "certificate-authority-data",
		"tls-server-name: elsewhere.test\n    certificate-authority-data", 1)
	plugin := Plugin()
	chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: {
		Config: []byte(`{"imagePolicy":{"kubeConfigFile":"k"}}`), Kubeconfig: []byte(kubeconfig),
	}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := message(t, chain, image("a")); !strings.Contains(got, "certificate is valid for") {
		t.Errorf("got %q, want an error about the certificate", got)
	}
}

func TestSize(t *testing.T) {
	if got := sizeOf(&imagepolicyv1alpha1.ImageReviewStatus{Reason: "ab", AuditAnnotations: map[string]string{"c": "de"}}); got != 5 {
		t.Errorf("got %d, want 5", got)
	}
}
