// Package callers tests how fastadmit authenticates callers: real API servers, by certificate,
// token and password, and strangers, which are refused.
package callers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// name is the API servers' name, in certificates and for passwords.
const name = "kube-apiserver"

// A credential is what an API server authenticates with. There is an old one and a new one.
type credential struct {
	authority       *cluster.Authority // of the certificate
	certFile        string
	keyFile         string
	token, password string
}

func newCredential(t *testing.T, about string) *credential {
	t.Helper()
	c := &credential{authority: cluster.NewAuthority(t), token: "token-" + about, password: "password-" + about}
	c.certFile, c.keyFile = certificateFiles(t, c.authority, name)
	return c
}

func certificateFiles(t *testing.T, authority *cluster.Authority, name string) (certFile, keyFile string) {
	t.Helper()
	cert, key := authority.Sign(t, cluster.Calling(name))
	return cluster.WriteFile(t, "client.crt", cert), cluster.WriteFile(t, "client.key", key)
}

// A way is a method of authentication.
type way struct {
	flags []string                            // of fastadmit, except those that name files
	files map[string]func(*credential) string // by flag: the content of the file for a credential
	user  func(*credential) map[string]any    // in the kubeconfig file of an API server
}

func byCertificate(c *credential) string { return string(c.authority.PEM) }
func byToken(c *credential) string       { return c.token + "," + name + ",1\n" }
func byPassword(c *credential) string    { return c.password + "," + name + ",1\n" }

// certificateFlags let a client certificate count for a second, which is then also how long a
// connection lasts.
var certificateFlags = []string{"--client-allowed-names=" + name, "--max-connection-age=1s"}

// ways are the methods by name. The names are also those of the namespaces in which objects are
// created.
var ways = map[string]way{
	"certificate": {
		flags: certificateFlags,
		files: map[string]func(*credential) string{"--client-ca-file": byCertificate},
		user: func(c *credential) map[string]any {
			return map[string]any{"client-certificate": c.certFile, "client-key": c.keyFile}
		},
	},
	"token": {
		files: map[string]func(*credential) string{"--token-auth-file": byToken},
		user:  func(c *credential) map[string]any { return map[string]any{"token": c.token} },
	},
	"password": {
		files: map[string]func(*credential) string{"--basic-auth-file": byPassword},
		user: func(c *credential) map[string]any {
			return map[string]any{"username": name, "password": c.password}
		},
	},
	"certificate-and-token": {
		flags: certificateFlags,
		files: map[string]func(*credential) string{"--client-ca-file": byCertificate, "--token-auth-file": byToken},
		user: func(c *credential) map[string]any {
			return map[string]any{"client-certificate": c.certFile, "client-key": c.keyFile, "token": c.token}
		},
	},
}

// An asking is a fastadmit that authenticates callers in one of the ways.
type asking struct {
	*cluster.Fastadmit
	way
	paths map[string]string // of the files, by flag
}

func startAsking(t *testing.T, authority *cluster.Authority, w way, c *credential) *asking {
	t.Helper()
	a := &asking{way: w, paths: make(map[string]string)}
	flags := append([]string{"--enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs"}, w.flags...)
	for flag, line := range w.files {
		a.paths[flag] = cluster.WriteFile(t, "callers", []byte(line(c)))
		flags = append(flags, flag, a.paths[flag])
	}
	a.Fastadmit = cluster.StartFastadmit(t, cluster.Binary, authority, flags...)
	return a
}

// allow replaces the files with ones that contain these credentials, and waits until they are in
// use.
func (a *asking) allow(t *testing.T, credentials ...*credential) {
	t.Helper()
	const reloads, failures = "fastadmit_config_reload_successes_total", "fastadmit_config_reload_failures_total"
	before := a.Metric(t, reloads)
	for flag, path := range a.paths {
		var text string
		for _, c := range credentials {
			text += a.files[flag](c)
		}
		if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Await(t, "the files to be read", func() error {
		if a.Metric(t, reloads) == before {
			return fmt.Errorf("%d changes were refused", a.Metric(t, failures))
		}
		return nil
	})
}

// A stand has a fastadmit for each way, and two API servers: one with old
// credentials, and one with new ones.
type stand struct {
	all         map[string]*asking
	credentials [2]*credential
	servers     [2]*cluster.APIServer
	authority   *cluster.Authority // of the serving certificates
}

func startStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{all: make(map[string]*asking), authority: cluster.NewAuthority(t)}
	s.credentials = [2]*credential{newCredential(t, "old"), newCredential(t, "new")}
	for name, way := range ways {
		s.all[name] = startAsking(t, s.authority, way, s.credentials[0])
	}
	marker := cluster.StartFastadmit(t, cluster.Binary, s.authority, "--enable-admission-plugins=AlwaysDeny")
	etcd := cluster.StartEtcd(t)
	for i, c := range s.credentials {
		s.servers[i] = etcd.StartAPIServer(t, cluster.APIServerOptions{
			Flags: map[string]string{"admission-control-config-file": s.admission(t, c)},
		})
	}
	old := s.servers[0]
	var mutating, validating []cluster.Webhook
	for name, a := range s.all {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := old.Client.CoreV1().Namespaces().Create(context.Background(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		hook := cluster.Webhook{CA: s.authority.PEM,
			Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}}}
		hook.URL, hook.Rules = a.URL+"/mutate", cluster.Rules("CREATE", "", "v1", "pods")
		mutating = append(mutating, hook)
		hook.URL, hook.Rules = a.URL+"/validate", cluster.Rules("CREATE", "", "v1", "services")
		validating = append(validating, hook)
	}
	markers := cluster.Webhook{URL: marker.URL, CA: s.authority.PEM}
	old.Validating(t, markers, validating...)
	old.Mutating(t, markers, mutating...)
	return s
}

// admission returns an AdmissionConfiguration with which an API server sends a credential to each
// of the fastadmits, in its way.
func (s *stand) admission(t *testing.T, c *credential) string {
	t.Helper()
	var users []map[string]any
	for _, a := range s.all {
		users = append(users, map[string]any{"name": strings.TrimPrefix(a.URL, "https://"), "user": a.user(c)})
	}
	kubeconfig, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Config", "users": users})
	if err != nil {
		t.Fatal(err)
	}
	return cluster.WriteFile(t, "admission.yaml", fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: &webhooks {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %q}
- name: ValidatingAdmissionWebhook
  configuration: *webhooks
`, cluster.WriteFile(t, "kubeconfig", kubeconfig)))
}

func TestCallers(t *testing.T) {
	s := startStand(t)
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		t.Run(name, func(t *testing.T) {
			if t.Run("strangers", func(t *testing.T) { s.strangers(t, name) }) {
				s.rotated(t, name)
			}
		})
	}
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// asks creates objects for which both webhooks are called, and returns an error if an answer is
// wrong.
func asks(s *cluster.APIServer, namespace string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx:1",
			ImagePullPolicy: corev1.PullIfNotPresent}}},
	}
	pod, err := s.Client.CoreV1().Pods(namespace).Create(context.Background(), pod, dryRun)
	if err != nil {
		return err
	}
	if policy := pod.Spec.Containers[0].ImagePullPolicy; policy != corev1.PullAlways {
		return fmt.Errorf("got imagePullPolicy %s, want Always", policy)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"},
		Spec:       corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	_, err = s.Client.CoreV1().Services(namespace).Create(context.Background(), service, dryRun)
	return cluster.WantError(err, "denied the request: DenyServiceExternalIPs: ")
}

// awaitRefused waits until an API server's calls are refused, and its user is told why.
func awaitRefused(t *testing.T, s *cluster.APIServer, namespace string) {
	t.Helper()
	cluster.Await(t, "the API server to be refused", func() error {
		err := asks(s, namespace)
		why := "Authorization: want a token or password"
		if strings.HasPrefix(namespace, "certificate") {
			why = "client certificate: x509: certificate signed by unknown authority"
		}
		return errors.Join(cluster.WantError(err, "failed calling webhook"), cluster.WantError(err, why))
	})
}

// rotated replaces credentials while they are in use. For a while both are valid. No call of an API
// server with a valid credential may fail.
func (s *stand) rotated(t *testing.T, name string) {
	a, old, next := s.all[name], s.servers[0], s.servers[1]
	if err := asks(old, name); err != nil {
		t.Fatal(err)
	}
	first := startStream(old, name)
	defer first.stop(t)
	awaitRefused(t, next, name)
	a.allow(t, s.credentials[:]...)
	second := startStream(next, name)
	defer second.stop(t)
	first.more(t)
	second.more(t)
	first.stop(t)
	a.allow(t, s.credentials[1])
	second.more(t)
	awaitRefused(t, old, name)
	second.more(t)
}

// A stream sends requests all the time.
type stream struct {
	mu     sync.Mutex
	calls  int
	errs   []error
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func startStream(s *cluster.APIServer, namespace string) *stream {
	ctx, cancel := context.WithCancel(context.Background())
	c := &stream{cancel: cancel}
	c.done.Go(func() {
		for ctx.Err() == nil {
			err := asks(s, namespace)
			c.mu.Lock()
			c.calls++
			if err != nil {
				c.errs = append(c.errs, err)
			}
			c.mu.Unlock()
			time.Sleep(10 * time.Millisecond) // leave time to other processes
		}
	})
	return c
}

// more waits for further calls.
func (c *stream) more(t *testing.T) {
	t.Helper()
	const calls = 20
	count := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.calls
	}
	before := count()
	cluster.Await(t, "calls", func() error {
		if got := count() - before; got < calls {
			return fmt.Errorf("got %d, want %d", got, calls)
		}
		return nil
	})
}

// stop ends the stream, of which no call may have failed.
func (c *stream) stop(t *testing.T) {
	t.Helper()
	c.cancel()
	c.done.Wait()
	for _, err := range c.errs {
		t.Error(err)
	}
	c.errs = nil
}
