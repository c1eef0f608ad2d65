// Package webhook tests fastadmit as a registered webhook of a real kube-apiserver: requests, their
// results, and failures of the webhook.
package webhook

import (
	"context"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// testserver is built from ../testserver by make e2e.
const testserver = "../.cache/testserver"

// stand is what the tests of this package share.
type stand struct {
	*cluster.APIServer
	authority *cluster.Authority
	fastadmit *cluster.Fastadmit
	warnings  *warnings
	// recording is the API server with clients that record its warnings.
	recording *cluster.APIServer
}

// TestWebhook starts a cluster once for all tests of the package.
func TestWebhook(t *testing.T) {
	s := &stand{authority: cluster.NewAuthority(t), warnings: new(warnings)}
	s.fastadmit = cluster.StartFastadmit(t, testserver, s.authority, "--enable-admission-plugins",
		"Echo,DenyUnwanted,DenyAttach,StageOne,StageTwo,AddInitContainer,Slow,Undecided,Panic,Scribble,AlwaysPullImages,AlwaysDeny")
	s.APIServer = cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{})
	s.recording = s.WithWarnings(t, s.warnings)
	t.Run("Wire", s.wire)
	t.Run("Conformance", s.conformance)
	t.Run("Failure", s.failure)
}

// hook is the webhook of a plugin.
func (s *stand) hook(path string) cluster.Webhook {
	return cluster.Webhook{URL: s.fastadmit.URL + path, CA: s.authority.PEM, Rules: cluster.Everything()}
}

func (s *stand) marker() cluster.Webhook {
	return cluster.Webhook{URL: s.fastadmit.URL, CA: s.authority.PEM}
}

func (s *stand) mutating(t *testing.T, hooks ...cluster.Webhook) {
	t.Helper()
	s.Mutating(t, s.marker(), hooks...)
}

func (s *stand) validating(t *testing.T, hooks ...cluster.Webhook) {
	t.Helper()
	s.Validating(t, s.marker(), hooks...)
}

// namespace creates a namespace and its service account, because no controller runs here.
func (s *stand) namespace(t *testing.T, name string) string {
	t.Helper()
	ctx := context.Background()
	if _, err := s.Client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.CoreV1().ServiceAccounts(name).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

// parse reads an object written in YAML.
func parse(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	object := new(unstructured.Unstructured)
	if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// create creates an object written in YAML.
func (s *stand) create(t *testing.T, manifest string) (*unstructured.Unstructured, error) {
	t.Helper()
	object := parse(t, manifest)
	resource, err := s.Resource(object)
	if err != nil {
		return nil, err
	}
	return resource.Create(context.Background(), object, metav1.CreateOptions{})
}

func (s *stand) mustCreate(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	object, err := s.create(t, manifest)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// warnings are the warnings that the client got.
type warnings struct {
	mu  sync.Mutex
	all []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// take returns the warnings since the last time, sorted.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.all
	w.all = nil
	slices.Sort(taken)
	return taken
}
