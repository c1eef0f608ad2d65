package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	serviceHost    = "fastadmit.fastadmit.svc"
	serviceAddress = "10.96.0.7:443" // there is no DNS
)

// A stand is a cluster with replicas of a server, on a fake clock.
type stand struct {
	*apiServer
	t        *testing.T
	started  int                    // replicas that were started
	ahead    []func() time.Duration // of the clocks of the first replicas
	cutOff   atomic.Bool            // the Service has no reachable endpoint
	turn     atomic.Int64
	mu       sync.Mutex
	replicas []*replica // running ones
}

func (s *stand) running() []*replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.replicas)
}

// inStand runs a test with a stand.
func inStand(t *testing.T, test func(s *stand)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := &inMemory{listeners: make(map[string]*listener)}
		s := &stand{apiServer: newAPIServer(t, network), t: t}
		s.create("clusterroles", &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "owner"}})
		s.create("services", clusterIP("10.96.0.7", 443))
		defer func() {
			for _, r := range s.running() {
				r.stop()
			}
			s.server.Close()
		}()
		test(s)
	})
}

// clusterIP returns the Service of the stand.
func clusterIP(address string, ports ...int32) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fastadmit", Name: "fastadmit"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: address},
	}
	for _, port := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: port})
	}
	return s
}

// A replica has a Manager and a server.
type replica struct {
	*Manager
	stand   *stand
	address string
	log     *logged
	ln      *listener
	takes   atomic.Pointer[taken] // nil without path tokens
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// options returns the options of the replicas of a stand.
func (s *stand) options() Options {
	return Options{
		Config:          s.config(),
		SecretNamespace: "fastadmit", SecretName: "certs",
		Hosts:          []string{serviceHost},
		Configurations: configurations("a"),
		Owner:          "owner",
		CALife:         6 * time.Hour, LeafLife: 100 * time.Minute, // so that they are not due at the same time
		Metrics: metrics.NewSet(),
	}
}

// start starts a replica.
func (s *stand) start(o Options) *replica {
	s.t.Helper()
	r := &replica{stand: s, address: fmt.Sprintf("pod-%d:8443", s.started), log: new(logged)}
	o.Log = slog.New(slog.NewTextHandler(r.log, nil))
	o.Dial = s.dial
	if o.PathTokens != nil {
		o.PathTokens = r.take
	}
	var err error
	if r.Manager, err = New(o); err != nil {
		s.t.Fatal(err)
	}
	if s.started < len(s.ahead) {
		ahead := s.ahead[s.started]
		r.clock.machine = func() time.Time { return time.Now().Add(ahead()) }
	}
	s.started++
	r.ln = s.network.listen(r.address)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.done.Go(func() { r.Run(ctx) })
	r.done.Go(r.serveTLS)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas = append(s.replicas, r)
	return r
}

func (r *replica) serveTLS() {
	config := &tls.Config{GetCertificate: r.Certificate, SessionTicketsDisabled: true}
	for {
		conn, err := r.ln.Accept()
		if err != nil {
			return
		}
		r.done.Go(func() {
			defer conn.Close()
			server := tls.Server(conn, config)
			if server.Handshake() == nil { // the client reports errors
				r.answer(server)
			}
		})
	}
}

func (r *replica) stop() {
	r.cancel()
	r.ln.Close()
	r.done.Wait()
	r.stand.mu.Lock()
	defer r.stand.mu.Unlock()
	r.stand.replicas = slices.DeleteFunc(r.stand.replicas, func(other *replica) bool { return other == r })
}

func (r *replica) ready() error { return r.Ready(context.Background(), r.address) }

// dial connects through the Service to a ready replica, in turns.
func (s *stand) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if address != serviceAddress {
		return s.network.dial(ctx, network, address)
	}
	all := s.running()
	turn := int(s.turn.Add(1))
	for i := range all {
		r := all[(turn+i)%len(all)]
		if !s.cutOff.Load() && r.ready() == nil {
			return s.network.dial(ctx, network, r.address)
		}
	}
	return nil, errors.New("no endpoints")
}

// settle advances the clock and waits until all goroutines are idle.
func (s *stand) settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *stand) create(resource string, object runtime.Object) {
	s.t.Helper()
	text, err := json.Marshal(object)
	if err == nil {
		_, err = s.write("create", resource, text, "helm")
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// configurations returns webhook configurations with webhooks of these names.
func configurations(names ...string) []runtime.Object {
	m := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: configurationVersion, Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "fastadmit.io"},
	}
	v := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: configurationVersion, Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "fastadmit.io"},
	}
	for _, name := range names {
		w := admissionregistrationv1.ValidatingWebhook{
			Name: name + ".fastadmit.io", SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: "fastadmit", Name: "fastadmit", Path: new("/" + name)},
			},
			AdmissionReviewVersions: []string{"v1"},
		}
		v.Webhooks = append(v.Webhooks, w)
		m.Webhooks = append(m.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: w.Name, SideEffects: w.SideEffects, ClientConfig: w.ClientConfig, AdmissionReviewVersions: w.AdmissionReviewVersions,
		})
	}
	return []runtime.Object{m, v}
}

func (s *stand) history() []snapshot {
	s.apiServer.mu.Lock()
	defer s.apiServer.mu.Unlock()
	return slices.Clone(s.bundles)
}

// callers are API servers that call all webhooks of all replicas. Their caches are outdated
// by their lags.
type callers struct {
	stand  *stand
	lags   []time.Duration
	calls  int
	failed []error
}

func (s *stand) callers(lags ...time.Duration) *callers { return &callers{stand: s, lags: lags} }

// call calls each replica at intervals for some time.
func (c *callers) call(during, every time.Duration) {
	for end := time.Now().Add(during); time.Now().Before(end); {
		c.stand.settle(every)
		for _, lag := range c.lags {
			c.callAll(lag)
		}
	}
}

// callAll verifies the certificate of each replica. Ready checks that it is served.
func (c *callers) callAll(lag time.Duration) {
	var known snapshot
	for _, s := range c.stand.history() {
		if time.Since(s.at) >= lag {
			known = s
		}
	}
	verified := make(map[string]error)
	for name, bundle := range known.bundles {
		for _, r := range c.stand.replicas {
			c.calls++
			pair, err := r.Certificate(nil)
			if err == nil {
				key := string(bundle) + string(pair.Certificate[0])
				if _, done := verified[key]; !done {
					roots := x509.NewCertPool()
					roots.AppendCertsFromPEM(bundle)
					_, verified[key] = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: serviceHost})
				}
				err = verified[key]
			}
			if err == nil {
				err = r.called(known.paths[name])
			}
			if err != nil {
				c.failed = append(c.failed, fmt.Errorf("%s: with a lag of %s, %s at %s: %w", time.Now(), lag, name, r.address, err))
			}
		}
	}
}

// check reports the calls that failed.
func (c *callers) check() {
	c.stand.t.Helper()
	if c.calls == 0 {
		c.stand.t.Error("nothing was called")
	}
	for i, err := range c.failed {
		if i == 5 {
			break
		}
		c.stand.t.Error(err)
	}
	if len(c.failed) > 0 {
		c.stand.t.Errorf("%d of %d calls failed", len(c.failed), c.calls)
	}
}

// logged collects the lines of a log.
type logged struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

// lines returns the lines that contain the text.
func (l *logged) lines(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.all.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// metric returns the value of a series.
func (r *replica) metric(series string) string {
	var all bytes.Buffer
	r.o.Metrics.WritePrometheus(&all)
	for line := range strings.Lines(all.String()) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return "none"
}
