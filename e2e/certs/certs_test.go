// Package certs runs replicas that manage their certificates in a real cluster,
// with exactly the permissions that they ask for, while two API servers call
// them.
package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/internal/registration/certs"
)

const (
	namespace   = "fastadmit"
	secretName  = "fastadmit-certs"
	serviceIP   = "127.11.0.10"
	serviceHost = "fastadmit.fastadmit.svc"

	// The lifetime of a CA is such that it is replaced after 40 s; a leaf lives
	// 24 s.
	caLife, leafLife = 60 * time.Second, 36 * time.Second
	// propagation is far longer than API servers on this machine take to read a
	// change.
	propagation = 3 * time.Second
)

// A replica is a server with the manager of its certificates.
type replica struct {
	*certs.Manager
	address string
	calls   atomic.Int64
	takes   atomic.Pointer[taken] // nil where there are no path tokens
}

// ServeHTTP allows everything.
func (r *replica) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if r.refused(w, request) {
		return
	}
	r.calls.Add(1)
	var review admissionv1.AdmissionReview
	body, err := io.ReadAll(request.Body)
	if err == nil {
		err = json.Unmarshal(body, &review)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// startReplica starts a replica, which ends with the test. Each call is a new
// connection.
func startReplica(t *testing.T, o certs.Options, log io.Writer) *replica {
	t.Helper()
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	r := new(replica)
	if strings.Contains(pathOf(o.Configurations), certs.PathTokenPlaceholder) {
		o.PathTokens = r.take
	}
	manager, err := certs.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.Manager, r.address = manager, ln.Addr().String()
	server := &http.Server{Handler: r, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	server.SetKeepAlivesEnabled(false)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { manager.Run(ctx) })
	done.Go(func() { _ = server.Serve(tls.NewListener(ln, &tls.Config{GetCertificate: manager.Certificate})) })
	t.Cleanup(func() {
		cancel()
		server.Close()
		done.Wait()
	})
	return r
}

// endpoints are the replicas behind the Service.
type endpoints struct {
	mu  sync.Mutex
	all []*replica
}

func (e *endpoints) add(r *replica) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, r)
}

// serve does what kube-proxy does for a Service: it forwards connections to the
// ready replicas in turns. It returns its port.
func (e *endpoints) serve(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", serviceIP+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for turn := 0; ; turn++ {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			all := slices.Clone(e.all)
			e.mu.Unlock()
			go forward(conn, all, turn)
		}
	}()
	return ln.Addr().(*net.TCPAddr).Port
}

func forward(conn net.Conn, replicas []*replica, turn int) {
	defer conn.Close()
	for i := range replicas {
		r := replicas[(turn+i)%len(replicas)]
		if r.Ready(context.Background(), r.address) != nil {
			continue
		}
		to, err := net.Dial("tcp", r.address)
		if err != nil {
			continue
		}
		defer to.Close()
		go func() {
			_, _ = io.Copy(to, conn) // either side ends it
			to.Close()
		}()
		_, _ = io.Copy(conn, to)
		return
	}
}

// configurations register webhooks for ConfigMaps in the namespace tenant.
func configurations(port int) []runtime.Object {
	meta := metav1.ObjectMeta{Name: "fastadmit.io"}
	to := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
		Namespace: namespace, Name: "fastadmit", Port: new(int32(port)),
	}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "tenant"}}
	var m []admissionregistrationv1.MutatingWebhook
	var v []admissionregistrationv1.ValidatingWebhook
	for _, name := range []string{"fail.fastadmit.io", "other.fastadmit.io"} {
		m = append(m, admissionregistrationv1.MutatingWebhook{
			Name: name, ClientConfig: to, Rules: cluster.Rules("CREATE", "", "v1", "configmaps"), NamespaceSelector: selector,
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		})
		v = append(v, admissionregistrationv1.ValidatingWebhook{
			Name: name, ClientConfig: to, Rules: cluster.Rules("CREATE", "", "v1", "configmaps"), NamespaceSelector: selector,
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		})
	}
	version := admissionregistrationv1.SchemeGroupVersion.String()
	return []runtime.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "MutatingWebhookConfiguration"}, ObjectMeta: meta, Webhooks: m,
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ValidatingWebhookConfiguration"}, ObjectMeta: meta, Webhooks: v,
		},
	}
}

// options are the options of a replica that calls the API server as user
// manager.
func options(s *cluster.APIServer) certs.Options {
	config := rest.CopyConfig(s.Config)
	config.BearerToken = managerToken
	return certs.Options{
		Config:          config,
		SecretNamespace: namespace, SecretName: secretName,
		Hosts:  []string{serviceHost},
		CALife: caLife, LeafLife: leafLife, Propagation: propagation,
	}
}

func prepare(t *testing.T, s *cluster.APIServer, port int) {
	t.Helper()
	for _, name := range []string{namespace, "tenant"} {
		if _, err := s.Client.CoreV1().Namespaces().Create(context.Background(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.MustKubectl(t, fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: fastadmit, namespace: fastadmit},
spec: {clusterIP: %s, ports: [{port: %d}]}}
---
{apiVersion: v1, kind: Secret, metadata: {name: fastadmit-certs, namespace: fastadmit}}`, serviceIP, port), "apply", "-f", "-")
}

// create makes a ConfigMap, as a dry run, for which all webhooks are called.
func create(s *cluster.APIServer) error {
	_, err := s.Client.CoreV1().ConfigMaps("tenant").Create(context.Background(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// callers create ConfigMaps through both API servers all the time.
type callers struct {
	calls atomic.Int64
	mu    sync.Mutex
	errs  []error
	stop  func()
}

// callEvery is the time between the calls of an API server. Each is for four webhooks, on new
// connections, so the full run's rate takes most of a processor.
func callEvery() time.Duration { return time.Duration(tally.Cases(100, 25)) * time.Millisecond }

func startCallers(servers []*cluster.APIServer) *callers {
	c := new(callers)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for _, s := range servers {
		done.Go(func() {
			for ctx.Err() == nil {
				if err := create(s); err != nil {
					c.mu.Lock()
					c.errs = append(c.errs, fmt.Errorf("%s: %w", time.Now().Format(time.StampMilli), err))
					c.mu.Unlock()
				}
				c.calls.Add(1)
				time.Sleep(callEvery())
			}
		})
	}
	c.stop = func() { cancel(); done.Wait() }
	return c
}

// awaitCalls waits until both API servers call the four webhooks.
func awaitCalls(t *testing.T, servers []*cluster.APIServer, replicas []*replica) {
	t.Helper()
	for _, s := range servers {
		cluster.Await(t, "the webhooks to be called", func() error {
			before := replicas[0].calls.Load() + replicas[1].calls.Load()
			if err := create(s); err != nil {
				t.Fatalf("a webhook was registered that cannot be called: %v", err)
			}
			if got := replicas[0].calls.Load() + replicas[1].calls.Load() - before; got != 4 {
				return fmt.Errorf("got %d calls, want 4", got)
			}
			return nil
		})
	}
}

// noneFailed stops the callers, and checks that no call failed.
func (c *callers) noneFailed(t *testing.T, replicas []*replica) {
	t.Helper()
	c.stop()
	for _, err := range c.errs {
		t.Error(err)
	}
	t.Logf("%d requests, %d failed; %d and %d calls", c.calls.Load(), len(c.errs), replicas[0].calls.Load(), replicas[1].calls.Load())
}

// noneForbidden checks that certs.Options.Rules allowed all requests.
func noneForbidden(t *testing.T, log *cluster.Buffer) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		// While the Secret is deleted, a replica may try to make it.
		if strings.Contains(line, "forbidden") && !strings.Contains(line, "there is no Secret "+secretName) {
			t.Errorf("the rules do not suffice: %s", line)
		}
	}
}

// TestManaged runs two replicas that create, renew and repair their certificates
// while two API servers call them.
func TestManaged(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 2)
	var service endpoints
	port := service.serve(t)
	prepare(t, servers[0], port)
	o := options(servers[0])
	o.Configurations, o.Owner = configurations(port), "fastadmit"
	allow(t, servers, "fastadmit", &o)
	log := new(cluster.Buffer)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	second := o
	second.Config = rest.CopyConfig(o.Config)
	second.Config.Host = servers[1].Config.Host
	replicas := []*replica{startReplica(t, o, log), startReplica(t, second, log)}
	service.add(replicas[0])
	service.add(replicas[1])

	ctx, secrets := context.Background(), servers[0].Client.CoreV1().Secrets(namespace)
	awaitCalls(t, servers, replicas)
	c := startCallers(servers)
	defer c.stop()

	secret := func() *corev1.Secret {
		got, err := secrets.Get(ctx, secretName, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return got
	}
	for key, n := range map[string]int{"ca.key": 2, corev1.TLSCertKey: 2} {
		for range n {
			before := secret().Data[key]
			cluster.Await(t, "a new "+key, func() error {
				if now := secret().Data[key]; len(now) > 0 && !bytes.Equal(now, before) {
					return nil
				}
				return errors.New("it is the same")
			})
		}
	}
	checkOwners(t, servers[0])

	healed := func(what string, uid types.UID, spoil func() error) {
		t.Helper()
		ca := secret().Data["ca.crt"]
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		cluster.Await(t, what+" Secret to be healed", func() error {
			if now := secret(); len(now.Data["ca.crt"]) < len("garbage")+1 || now.UID == uid {
				return errors.New("it is not")
			}
			return nil
		})
		first := strings.SplitAfterN(string(ca), "-----END CERTIFICATE-----", 2)[0]
		if !strings.Contains(string(secret().Data["ca.crt"]), first) {
			t.Errorf("after a %s Secret, the CA that leaves are of is gone", what)
		}
	}
	healed("deleted", secret().UID, func() error {
		if err := secrets.Delete(ctx, secretName, metav1.DeleteOptions{}); err != nil {
			return err
		}
		// An upgrade of the chart makes it again, without data. fastadmit may not.
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}}, metav1.CreateOptions{})
		return err
	})
	healed("spoiled", "", func() error {
		_, err := secrets.Patch(ctx, secretName, types.MergePatchType, []byte(`{"data":{"ca.crt":"Z2FyYmFnZQ==","tls.key":null}}`),
			metav1.PatchOptions{})
		// The API server insists on tls.key for that type.
		if apierrors.IsInvalid(err) {
			_, err = secrets.Patch(ctx, secretName, types.MergePatchType,
				[]byte(`{"data":{"ca.crt":"Z2FyYmFnZQ==","tls.key":"Z2FyYmFnZQ=="}}`), metav1.PatchOptions{})
		}
		return err
	})
	time.Sleep(2 * propagation) // a failure would show in this time
	c.noneFailed(t, replicas)
	checkServing(t, replicas)
	noneForbidden(t, log)
	uninstall(t, servers[0])
}

// checkServing checks that all replicas are ready, and that each was called.
func checkServing(t *testing.T, replicas []*replica) {
	t.Helper()
	for _, r := range replicas {
		if err := r.Ready(t.Context(), r.address); err != nil {
			t.Error(err)
		}
		if r.calls.Load() == 0 {
			t.Error("a replica was never called")
		}
	}
}

// checkOwners checks which objects are deleted together with the ClusterRole. The Secret is the
// chart's, and has no owner.
func checkOwners(t *testing.T, s *cluster.APIServer) {
	t.Helper()
	got := s.MustKubectl(t, "", "get", "-n", namespace, "mutatingwebhookconfiguration/fastadmit.io",
		"validatingwebhookconfiguration/fastadmit.io",
		"secret/"+secretName, "-o", `jsonpath={range .items[*]}{.metadata.ownerReferences[*].kind} `+
			`{.metadata.ownerReferences[*].name}{"\n"}{end}`)
	if want := strings.Repeat("ClusterRole fastadmit\n", 2) + " \n"; got != want {
		t.Errorf("got owners\n%swant\n%s", got, want)
	}
}

// uninstall removes the owner. All objects that it owns must be deleted and stay
// deleted, although the replicas run.
func uninstall(t *testing.T, s *cluster.APIServer) {
	s.StartControllerManager(t, "garbage-collector-controller")
	s.MustKubectl(t, "", "delete", "clusterrole", "fastadmit")
	gone := func() error {
		got := s.MustKubectl(t, "", "get", "-n", namespace, "mutatingwebhookconfigurations,validatingwebhookconfigurations",
			"-o", "name")
		if got != "" {
			return fmt.Errorf("there are %s", got)
		}
		return nil
	}
	cluster.Await(t, "all to be gone", gone)
	time.Sleep(2 * propagation) // time in which they would come back
	if err := gone(); err != nil {
		t.Error(err)
	}
}

// TestOthersConfiguration expects the bundles to stay in configurations that
// kubectl applies, by server-side apply and without.
func TestOthersConfiguration(t *testing.T) {
	t.Parallel()
	s := startCluster(t, 1)[0]
	var service endpoints
	port := service.serve(t)
	prepare(t, s, port)
	o := options(s)
	o.ValidatingWebhookConfigurations = []string{"fastadmit.io", "client-side.fastadmit.io"}
	allow(t, []*cluster.APIServer{s}, "fastadmit", &o)
	log := new(cluster.Buffer)
	service.add(startReplica(t, o, log))

	chart := func(name string, change func(w *admissionregistrationv1.ValidatingWebhookConfiguration)) string {
		object := configurations(port)[1].(*admissionregistrationv1.ValidatingWebhookConfiguration)
		object.Name = name
		change(object)
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	asIs := func(*admissionregistrationv1.ValidatingWebhookConfiguration) {}
	bundles := func(name string) error {
		w, err := s.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		secret, err := s.Client.CoreV1().Secrets(namespace).Get(context.Background(), secretName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, w := range w.Webhooks {
			if !bytes.Equal(w.ClientConfig.CABundle, secret.Data["ca.crt"]) {
				return fmt.Errorf("%s has another bundle", w.Name)
			}
		}
		return create(s)
	}
	for name, apply := range map[string][]string{
		"fastadmit.io":             {"apply", "--server-side", "--field-manager=helm", "-f", "-"},
		"client-side.fastadmit.io": {"apply", "-f", "-"},
	} {
		for range 2 { // applied again, it leaves the bundles alone
			s.MustKubectl(t, chart(name, asIs), apply...)
			cluster.Await(t, "the bundles of "+name, func() error { return bundles(name) })
		}
		got := s.MustKubectl(t, chart(name, asIs), apply...)
		if err := bundles(name); err != nil {
			t.Errorf("%s: %v", got, err)
		}
	}
	managed := s.MustKubectl(t, "", "get", "validatingwebhookconfiguration", "fastadmit.io", "--show-managed-fields",
		"-o", `jsonpath={.metadata.managedFields[?(@.manager=="fastadmit-certs")].fieldsV1}`)
	want := `{"f:webhooks":{"k:{\"name\":\"fail.fastadmit.io\"}":{".":{},"f:clientConfig":{"f:caBundle":{}},"f:name":{}},` +
		`"k:{\"name\":\"other.fastadmit.io\"}":{".":{},"f:clientConfig":{"f:caBundle":{}},"f:name":{}}}}`
	if managed != want {
		t.Errorf("got fields\n%s\nwant\n%s", managed, want)
	}

	// A bundle in the chart is a conflict.
	own := chart("fastadmit.io", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
		c.Webhooks[0].ClientConfig.CABundle = []byte("x")
	})
	if _, stderr, err := s.Kubectl(t, own, "apply", "--server-side", "--field-manager=helm", "-f", "-"); err == nil ||
		!strings.Contains(stderr, `conflict with "fastadmit-certs"`) {
		t.Errorf("got %v: %s, want a conflict", err, stderr)
	}
	s.MustKubectl(t, own, "apply", "--server-side", "--field-manager=helm", "--force-conflicts", "-f", "-")
	cluster.Await(t, "the bundle to be back", func() error { return bundles("fastadmit.io") })
	// The drawback of owning a field: see the comment of package certs.
	oneWebhook := func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { c.Webhooks = c.Webhooks[:1] }
	_, stderr, err := s.Kubectl(t, chart("fastadmit.io", oneWebhook), "apply", "--server-side", "--field-manager=helm", "-f", "-")
	if err == nil || !strings.Contains(stderr, "webhooks[1].clientConfig: Required value") {
		t.Errorf("got %v: %s, want that the webhook cannot be removed", err, stderr)
	}
	s.MustKubectl(t, chart("client-side.fastadmit.io", oneWebhook), "apply", "-f", "-")
	if got := log.String(); strings.Contains(got, "level=WARN") {
		t.Errorf("got warnings:\n%s", got)
	}
}
