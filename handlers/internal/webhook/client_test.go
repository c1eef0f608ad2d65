package webhook

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/handlers/internal/slots"
)

// mustReadCredentials reads a kubeconfig file with these users, as JSON.
func mustReadCredentials(t *testing.T, users, more string) *credentials {
	t.Helper()
	known, err := readCredentials(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","users":[%s]%s}`, users, more))
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// TestAuthenticationDetection has upstream's cases (k8s.io/apiserver pkg/util/webhook
// authentication_test.go).
func TestAuthenticationDetection(t *testing.T) {
	f := func(target, users, more, want string) {
		t.Helper()
		var text []string
		for name := range strings.FieldsSeq(users) {
			text = append(text, fmt.Sprintf(`{"name":%q,"user":{"token":%q}}`, name, "T"+name))
		}
		known := mustReadCredentials(t, strings.Join(text, ","), more)
		if want != "" {
			want = "T" + want
		}
		if got := known.configFor(target); !reflect.DeepEqual(got, &rest.Config{BearerToken: want}) {
			t.Errorf("%s with %s%s: got %v, want %s", target, users, more, got, want)
		}
	}
	const all = "one.two.three.com:443 one.two.three.com *.two.three.com:443 *.two.three.com *.three.com *.com *"
	f("foo.com", "", "", "")
	f("foo.com", "bar.com", `,"contexts":[{"name":"ctx","context":{"user":"bar.com"}}],"current-context":"ctx"`, "bar.com")
	f("foo.com", "bar.com", `,"contexts":[{"name":"ctx","context":{"user":"bar.com"}}],"current-context":"other"`, "")
	f("foo.com", "bar.com", `,"contexts":[{"name":"ctx","context":{"user":"none"}}],"current-context":"ctx"`, "")
	f("foo.com", "bar.com", `,"contexts":[{"name":"ctx","context":{"cluster":"c"}}],"current-context":"ctx"`, "")
	f("foo.com", "* bar.com", `,"contexts":[{"name":"ctx","context":{"user":"bar.com"}}],"current-context":"ctx"`, "*")
	f("foo.com", "foo.com *.com bar.com", "", "foo.com")
	f("foo.com", "*.com bar.com", "", "*.com")
	f("foo.com", "* bar.com", "", "*")
	f("foo.com", "bar.com", "", "")
	f("one.two.three.com", "*.two.three.com *.three.com *.com", "", "*.two.three.com")
	f("one.two.three.com:443", all, "", "one.two.three.com:443")
	f("one.two.three.com:443", strings.Replace(all, "one.two.three.com:443 one.two.three.com ", "", 1), "", "*.two.three.com:443")
	f("one.two.three.com:443", "one.two.three.com *.com", "", "one.two.three.com")
	f("one.two.three.com:443", "*.two.three.com *.three.com *.com *", "", "*.two.three.com")
	f("one.two.three.com:8443", "one.two.three.com:8443 *.two.three.com *", "", "one.two.three.com:8443")
	f("one.two.three.com:8443", "*.two.three.com:8443 one.two.three.com *", "", "*.two.three.com:8443")
	f("one.two.three.com:8443", "one.two.three.com *.two.three.com *.three.com *.com *", "", "*")
}

// TestCredentialKinds checks the other credentials that a user in a kubeconfig may have.
func TestCredentialKinds(t *testing.T) {
	f := func(user string, want *rest.Config) {
		t.Helper()
		if got := mustReadCredentials(t, `{"name":"*","user":`+user+`}`, "").configFor("a:443"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v\nwant %#v", user, got, want)
		}
	}
	f(`{"username":"u","password":"p"}`, &rest.Config{Username: "u", Password: "p"})
	f(`{"client-certificate-data":"YQ==","client-key-data":"Yg=="}`,
		&rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: []byte("a"), KeyData: []byte("b")}})
	f(`{"token":"foo","as":"user-a","as-uid":"1111","as-groups":["g1","g2"],"as-user-extra":{"foo":["bar","baz"]}}`, &rest.Config{
		BearerToken: "foo", Impersonate: rest.ImpersonationConfig{
			UserName: "user-a", UID: "1111", Groups: []string{"g1", "g2"}, Extra: map[string][]string{"foo": {"bar", "baz"}},
		},
	})
	f(`{"as-uid":"1111"}`, new(rest.Config))
	known := mustReadCredentials(t, `{"name":"*","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"c",`+
		`"interactiveMode":"Never"}}}`, "")
	if got := known.configFor("a:443").ExecProvider; got == nil || got.Command != "c" {
		t.Errorf("got %v, want the command", got)
	}
	if _, err := readCredentials([]byte(`{"apiVersion":"v1","kind":"Config","users":[{"name":"a",` +
		`"user":{"auth-provider":{"name":"gcp"}}}]}`)); err == nil ||
		err.Error() != `kubeConfigFile: users["a"]: auth provider not supported` {
		t.Errorf("got %v", err)
	}
	if _, err := readCredentials([]byte(`s3cr3t`)); err == nil || err.Error() != "kubeConfigFile: not a kubeconfig file" {
		t.Errorf("got %v", err)
	}
	if known, err := readCredentials(nil); err != nil || !reflect.DeepEqual(known.configFor("a:443"), new(rest.Config)) {
		t.Errorf("got %v, want nothing to present", err)
	}
}

// TestClientConfig checks the configurations of clients, and configurations for which no client can be made.
func TestClientConfig(t *testing.T) {
	known := mustReadCredentials(t,
		`{"name":"a.example.com","user":{"token":"443"}},{"name":"a.example.com:8443","user":{"token":"8443"}},`+
			`{"name":"hook.shop.svc:8443","user":{"token":"service"}},{"name":"both.example.com","user":{"token":"t",`+
			`"username":"u","password":"p"}}`, "")
	url := func(u string) *admissionregistrationv1.WebhookClientConfig {
		return &admissionregistrationv1.WebhookClientConfig{URL: &u}
	}
	service := &admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
		Namespace: "shop", Name: "hook", Port: new(int32(8443)),
	}}
	f := func(c *admissionregistrationv1.WebhookClientConfig, host, path, token, server string) {
		t.Helper()
		got, _, err := newConfig(c, known, nil)
		if err != nil || got.Host != host || got.APIPath != path || got.BearerToken != token || got.ServerName != server {
			t.Errorf("%v: got %+v, %v", c, got, err)
		}
	}
	f(url("https://a.example.com/x?y"), "https://a.example.com", "/x", "443", "")
	f(url("https://a.example.com:443/"), "https://a.example.com:443", "/", "443", "")
	f(url("https://a.example.com:8443/x"), "https://a.example.com:8443", "/x", "8443", "")
	f(service, "https://hook.shop.svc:8443", "", "service", "hook.shop.svc")
	service.Service.Path = new("/at")
	f(service, "https://hook.shop.svc:8443", "/at", "service", "hook.shop.svc")

	fails := func(c *admissionregistrationv1.WebhookClientConfig, want string) {
		t.Helper()
		if _, err := newClient(c, known, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %s", c, err, want)
		}
	}
	fails(url("https://a\x7f.example.com/"), "invalid control character in URL")
	fails(&admissionregistrationv1.WebhookClientConfig{URL: new("https://a.example.com"), CABundle: []byte("x")},
		"unable to load root certificates")
	fails(url("https://both.example.com/"), "username/password or bearer token may be set, but not both")

	client, err := newClient(url("https://other.example.com/x"), known, nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := client.Client.Transport
	type wrapper interface{ WrappedRoundTripper() http.RoundTripper }
	for wrapped, ok := transport.(wrapper); ok; wrapped, ok = transport.(wrapper) {
		transport = wrapped.WrappedRoundTripper()
	}
	used := transport.(roundTripper).next.(*http.Transport)
	if used.TLSClientConfig.MinVersion != tls.VersionTLS12 || used.MaxIdleConnsPerHost != 25 || used.IdleConnTimeout != 90*time.Second ||
		used.TLSHandshakeTimeout != 10*time.Second || used.MaxResponseHeaderBytes != 64<<10 {
		t.Errorf("got %+v", used)
	}
}

// TestResolve has upstream's cases for ResolveCluster (k8s.io/apiserver pkg/util/proxy
// proxy_test.go TestResolve).
func TestResolve(t *testing.T) {
	of := func(name string, spec corev1.ServiceSpec) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: name}, Spec: spec}
	}
	ports := []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "https", Port: 443}}
	need := cluster.Services.Called("get")
	state, err := cluster.New(cluster.Options{Objects: []runtime.Object{
		of("ip", corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.1", Ports: ports}),
		of("v6", corev1.ServiceSpec{ClusterIP: "fd00::1", Ports: ports}),
		of("balanced", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.0.0.2", Ports: ports}),
		of("nodes", corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.0.0.3", Ports: ports}),
		of("headless", corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "None", Ports: ports}),
		of("external", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "foo.bar.com"}),
		of("odd", corev1.ServiceSpec{Type: "Odd", ClusterIP: "10.0.0.4", Ports: ports}),
	}})
	if err == nil {
		err = state.Follow(t.Context(), need)
	}
	if err != nil {
		t.Fatal(err)
	}
	services := cluster.Services.In(state.View(need))
	f := func(name string, port int32, want, wantErr string) {
		t.Helper()
		got, err := resolve(t.Context(), services, &admissionregistrationv1.ServiceReference{Namespace: "one", Name: name, Port: &port})
		if got != want || (err != nil) != (wantErr != "") || err != nil && err.Error() != wantErr {
			t.Errorf("%s:%d: got %s, %v, want %s, %s", name, port, got, err, want, wantErr)
		}
	}
	f("ip", 443, "10.0.0.1:443", "")
	f("ip", 80, "10.0.0.1:80", "")
	f("ip", 444, "", `no service port 444 found for service "ip"`)
	f("v6", 443, "[fd00::1]:443", "")
	f("balanced", 443, "10.0.0.2:443", "")
	f("nodes", 443, "10.0.0.3:443", "")
	f("headless", 443, "", `cannot route to service with ClusterIP "None"`)
	f("external", 443, "foo.bar.com:443", "")
	f("odd", 443, "", `unsupported service type "Odd"`)
	f("none", 443, "", `services "none" not found`)
	if _, err := resolve(t.Context(), nil, &admissionregistrationv1.ServiceReference{}); err == nil ||
		err.Error() != "there is no cluster that has the service" {
		t.Errorf("got %v", err)
	}
	_, dial, err := newConfig(&admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
		Namespace: "one", Name: "headless", Port: new(int32(443)),
	}}, mustReadCredentials(t, "", ""), services)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t.Context(), "tcp", "headless.one.svc:443"); err == nil || !strings.Contains(err.Error(), "cannot route") {
		t.Errorf("got %v, want the Service to be asked for", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	other, err := dial(t.Context(), "tcp", listener.Addr().String()) // that of a proxy
	if err != nil {
		t.Fatal(err)
	}
	_ = other.Close()
}

// TestCodeLabels checks that webhooks cannot create any number of labels by their codes.
func TestCodeLabels(t *testing.T) {
	for code, want := range map[int32]string{-1: "other", 0: "other", 99: "other", 100: "100", 200: "200", 599: "599", 600: "other"} {
		if got := codeLabel(code); got != want {
			t.Errorf("%d: got %s, want %s", code, got, want)
		}
	}
}

// TestWebhooksMeasured checks that webhooksMeasuredMax webhooks have series of their own, and that further
// ones share one.
func TestWebhooksMeasured(t *testing.T) {
	set := metrics.NewSet()
	m := newSourceMetrics("P", set)
	for i := range webhooksMeasuredMax + 2 {
		name := fmt.Sprintf("w%d", i)
		want := name
		if i >= webhooksMeasuredMax {
			want = otherName
		}
		if got := m.of(&Webhook{Name: name, calls: slots.New(callsMax, tenantCallsMax)}); got.name != want {
			t.Errorf("webhook %d is measured as %s, want %s", i, got.name, want)
		}
	}
	m.of(&Webhook{Name: "w0", calls: slots.New(callsMax, tenantCallsMax)}).took.Update(1)
	var text strings.Builder
	set.WritePrometheus(&text)
	for bound, n := range map[string]int{"0.005": 0, "0.025": 0, "0.1": 0, "0.5": 0, "1": 1, "2.5": 1, "10": 1, "25": 1, "+Inf": 1} {
		want := fmt.Sprintf("fastadmit_webhook_admission_duration_seconds_bucket{plugin=\"P\",webhook=\"w0\",le=%q} %d\n", bound, n)
		if !strings.Contains(text.String(), want) {
			t.Errorf("want %s", want)
		}
	}
	again := &Webhook{Name: "w0", calls: slots.New(callsMax, tenantCallsMax)}
	if got := m.of(again); got.name != "w0" || got.current() != again {
		t.Errorf("got %s, want the series that there are, of the new webhook", got.name)
	}
}

// TestMeasuredAnew checks that a new configuration takes over the series of the one before.
func TestMeasuredAnew(t *testing.T) {
	set := metrics.NewSet()
	for i := range 2 {
		m := newSourceMetrics("P", set)
		m.of(&Webhook{Name: "w", calls: slots.New(callsMax, tenantCallsMax)}).current().calls.Take(t.Context(), slots.Tenant{})
		m.countInvalid(func() float64 { return float64(i) })
		var text strings.Builder
		set.WritePrometheus(&text)
		for _, want := range []string{`calls_inflight{plugin="P",webhook="w"} 1`, `circuit_open{plugin="P",webhook="w"} 0`,
			fmt.Sprintf(`configurations_invalid{plugin="P"} %d`, i)} {
			if !strings.Contains(text.String(), "fastadmit_webhook_"+want+"\n") {
				t.Errorf("got %s\nwant %s", &text, want)
			}
		}
	}
}

// TestPanic checks that a call that panics fails.
func TestPanic(t *testing.T) {
	c := NoCall(&Webhook{Name: "a"}, nil) // without metrics
	c.Answer = new(Answer)
	if c.Do(); c.Answer != nil || c.Err == nil || c.Err.Error() != `Internal error occurred: calling webhook "a" has panicked` {
		t.Errorf("got %v, %v", c.Answer, c.Err)
	}
}
