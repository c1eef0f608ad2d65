package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// A breakage is a way for a webhook to fail.
type breakage struct {
	url func(t *testing.T) string
	// text is part of the user's error with failurePolicy Fail.
	text string
	// hangs is set if the webhook does not answer. It gets a second, and the others half a minute,
	// so that they do not time out on a slow machine.
	hangs bool
	// mutating is set if a mutating webhook fails, otherwise a validating one does.
	mutating bool
}

// failure checks failure policies as Kubernetes documents them: with Fail the request fails, with
// Ignore it does not. This also holds for fastadmit's own error answers.
func (s *stand) failure(t *testing.T) {
	for name, broken := range map[string]breakage{
		"killed":           {url: s.killed, text: "connect: connection refused"},
		"hung":             {url: hung, text: "context deadline exceeded", hangs: true},
		"frozen":           {url: s.frozen, text: "context deadline exceeded", hangs: true},
		"rubbish":          {url: s.answering(http.StatusOK, "rubbish"), text: "json parse error"},
		"other-json":       {url: s.answering(http.StatusOK, `{"kind":"Status","apiVersion":"v1"}`), text: "unknown conversion"},
		"status-500":       {url: s.answering(http.StatusInternalServerError, "broken"), text: "an error on the server"},
		"status-503":       {url: s.answering(http.StatusServiceUnavailable, "busy"), text: "currently unable to handle the request"},
		"expired":          {url: s.expired, text: "certificate has expired"},
		"other-authority":  {url: s.otherAuthority, text: "certificate signed by unknown authority"},
		"not-enabled":      {url: s.path("/validate/DenyServiceExternalIPs"), text: `plugin "DenyServiceExternalIPs" is not enabled`},
		"unknown-path":     {url: s.path("/elsewhere"), text: `path: got "/elsewhere"`},
		"mutates-validate": {url: s.path("/mutate/DenyUnwanted"), text: `plugin "DenyUnwanted" is not enabled or does not mutate`},
		"out-of-time":      {url: s.path("/validate/Slow"), text: "context deadline exceeded", hangs: true},
		"failed":           {url: s.path("/validate/Undecided"), text: "admission plugin Undecided failed: as it is meant to"},
		"failed-mutating": {url: s.path("/mutate/Undecided"), text: "admission plugin Undecided failed: as it is meant to",
			mutating: true},
		"panicked": {url: s.path("/validate/Panic"), text: "admission plugin Panic failed: it panicked"},
		// A patch for a deleted object would fail the request under either policy.
		"scribbled": {url: s.path("/mutate/Scribble"), text: "admission plugin Scribble failed", mutating: true},
	} {
		t.Run(name, func(t *testing.T) { s.breaks(t, name, broken) })
	}
	t.Run("killed-meanwhile", s.killedMeanwhile)
	t.Run("stopped-meanwhile", s.stoppedMeanwhile)
	t.Run("too-large", s.tooLarge)
}

var policies = []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore}

// breaks creates and deletes a pod under either policy.
func (s *stand) breaks(t *testing.T, name string, broken breakage) {
	namespace, url, timeout := s.namespace(t, name), broken.url(t), int32(30)
	if broken.hangs {
		timeout = 1
	}
	for _, policy := range policies {
		for _, operation := range []string{"CREATE", "DELETE"} {
			t.Run(string(policy)+"-"+operation, func(t *testing.T) {
				if operation == "DELETE" {
					s.mustCreate(t, pod(namespace, "c"))
				}
				hook := cluster.Webhook{URL: url, CA: s.authority.PEM, FailurePolicy: policy, Timeout: timeout,
					Rules: cluster.Rules(operation, "", "v1", "pods")}
				if broken.mutating {
					s.mutating(t, hook)
				} else {
					s.validating(t, hook)
				}
				var err error
				if operation == "DELETE" {
					err = s.Client.CoreV1().Pods(namespace).Delete(context.Background(), "p", now)
				} else {
					_, err = s.create(t, pod(namespace, "c"))
				}
				if policy == admissionregistrationv1.Ignore {
					allowed(t, err)
				} else {
					denied(t, err, broken.text)
				}
			})
			// In any case, there must be no pod in the end.
			_ = s.Client.CoreV1().Pods(namespace).Delete(context.Background(), "p", now)
		}
	}
}

// now are options to delete pods at once, because there is no kubelet.
var now = metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}

// killedMeanwhile kills fastadmit while it answers.
func (s *stand) killedMeanwhile(t *testing.T) {
	namespace := s.namespace(t, "killed-meanwhile")
	for _, policy := range policies {
		t.Run(string(policy), func(t *testing.T) {
			f := cluster.StartFastadmit(t, testserver, s.authority, "--enable-admission-plugins", "Slow")
			err := s.meanwhile(t, namespace, f, policy, f.Kill)
			if policy == admissionregistrationv1.Ignore {
				allowed(t, err)
			} else {
				denied(t, err, "failed calling webhook")
			}
		})
	}
}

// stoppedMeanwhile ends fastadmit with SIGTERM while it answers and while the API server holds
// connections that it has not used: the API server opens one for each call of a burst, and many
// calls find another one free before theirs is ready. The answer arrives, and fastadmit ends in
// time.
func (s *stand) stoppedMeanwhile(t *testing.T) {
	namespace := s.namespace(t, "stopped-meanwhile")
	f := cluster.StartFastadmit(t, testserver, s.authority, "--enable-admission-plugins", "Echo,Slow")
	t.Run("burst", func(t *testing.T) {
		s.validating(t, cluster.Webhook{URL: f.URL + "/validate/Echo", CA: s.authority.PEM,
			Rules: cluster.Rules("CREATE", "", "v1", "pods")})
		var burst errgroup.Group
		for range 50 {
			burst.Go(func() error {
				return s.createPod(namespace, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			})
		}
		allowed(t, burst.Wait())
	})
	allowed(t, s.meanwhile(t, namespace, f, admissionregistrationv1.Fail, func() { f.Stop(t) }))
	f.Stop(t) // waits until it has ended
}

// tooLarge makes a review of 42 MiB, which fastadmit does not accept: of the largest possible
// object and a patch that adds the largest request to it. It is a dry run, because it could not be
// stored.
func (s *stand) tooLarge(t *testing.T) {
	namespace := s.namespace(t, "too-large")
	resource, ctx := s.Client.CoreV1().PodTemplates(namespace), context.Background()
	env := func(name string, bytes int) []corev1.EnvVar {
		return []corev1.EnvVar{{Name: name, Value: strings.Repeat("<", bytes)}}
	}
	_, err := resource.Create(ctx, &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Env: env("STORED", storedBytesMax)}}}}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Sprintf(`{"template":{"spec":{"containers":[{"name":"c","env":[{"name":"ADDED","value":%q}]}]}}}`,
		strings.Repeat("<", bodyBytesMax-100))
	for _, policy := range policies {
		t.Run(string(policy), func(t *testing.T) {
			hook := s.hook("/validate/Echo")
			hook.Rules, hook.FailurePolicy, hook.Timeout = cluster.Rules("UPDATE", "", "v1", "podtemplates"), policy, 30
			s.validating(t, hook)
			_, err := resource.Patch(ctx, "p", types.StrategicMergePatchType, []byte(patch),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if policy == admissionregistrationv1.Ignore {
				allowed(t, err)
			} else {
				denied(t, err, "body: got more than 33554432 bytes, the maximum")
			}
		})
	}
}

// meanwhile creates a pod, and calls a function while the plugin Slow reviews it.
func (s *stand) meanwhile(t *testing.T, namespace string, f *cluster.Fastadmit, policy admissionregistrationv1.FailurePolicyType,
	do func()) error {
	t.Helper()
	s.validating(t, cluster.Webhook{URL: f.URL + "/validate/Slow", CA: s.authority.PEM, FailurePolicy: policy,
		Rules: cluster.Rules("CREATE", "", "v1", "pods")})
	result := make(chan error)
	go func() { result <- s.createPod(namespace, metav1.CreateOptions{}) }()
	for f.Metric(t, "fastadmit_requests_in_flight") == 0 {
		time.Sleep(20 * time.Millisecond)
	}
	go do()
	return <-result
}

// createPod creates a pod. It returns an error, so that goroutines can call it.
func (s *stand) createPod(namespace string, options metav1.CreateOptions) error {
	_, err := s.Client.CoreV1().Pods(namespace).Create(context.Background(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, options)
	return err
}

func (s *stand) path(path string) func(*testing.T) string {
	return func(*testing.T) string { return s.fastadmit.URL + path }
}

func (s *stand) killed(t *testing.T) string {
	f := cluster.StartFastadmit(t, testserver, s.authority, "--enable-admission-plugins", "Echo")
	f.Kill()
	return f.URL + "/validate"
}

func (s *stand) expired(t *testing.T) string {
	return cluster.StartFastadmitUntil(t, testserver, s.authority, time.Now().Add(-time.Minute),
		"--enable-admission-plugins", "Echo").URL + "/validate"
}

func (s *stand) otherAuthority(t *testing.T) string {
	return cluster.StartFastadmit(t, testserver, cluster.NewAuthority(t), "--enable-admission-plugins", "Echo").URL + "/validate"
}

func (s *stand) frozen(t *testing.T) string {
	f := cluster.StartFastadmit(t, testserver, s.authority, "--enable-admission-plugins", "Echo")
	f.Freeze(t)
	return f.URL + "/validate"
}

// hung accepts connections and does not answer.
func hung(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "https://" + l.Addr().String() + "/validate"
}

// answering is a server that always gives the same answer.
func (s *stand) answering(code int, body string) func(t *testing.T) string {
	return func(t *testing.T) string {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body)) // the client may have gone
		}))
		pair, err := tls.X509KeyPair(s.authority.Sign(t, cluster.Serving(time.Now().Add(time.Hour), "127.0.0.1")))
		if err != nil {
			t.Fatal(err)
		}
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.URL + "/validate"
	}
}
