// Package semantics tests fastadmit's configuration for each plugin, and the same settings of a
// webhook configuration, on a real kube-apiserver.
package semantics

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// testserver is built from ../testserver by make e2e.
const testserver = "../.cache/testserver"

// stand is what the tests share.
type stand struct {
	*cluster.APIServer
	authority *cluster.Authority
	config    string // the configuration file of fastadmit
	fastadmit *cluster.Fastadmit
	markers   *cluster.Fastadmit // shows whether a webhook
}

const head = "apiVersion: fastadmit.io/v1alpha1\nkind: Configuration\n" +
	"enableAdmissionPlugins: [AlwaysDeny, AlwaysPullImages, DenyUnwanted, Undecided, Panic, TurnsA, TurnsB]\n"

func TestSemantics(t *testing.T) {
	s := &stand{authority: cluster.NewAuthority(t), config: filepath.Join(t.TempDir(), "config.yaml")}
	s.APIServer = cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{})
	s.write(t, head)
	s.fastadmit = cluster.StartFastadmit(t, testserver, s.authority, "--config", s.config, "--kubeconfig", s.Kubeconfig(t))
	s.markers = cluster.StartFastadmit(t, testserver, s.authority, "--enable-admission-plugins=AlwaysDeny")
	t.Run("Reinvocation", s.reinvocation)
	t.Run("NamespaceSelector", s.namespaceSelector)
	t.Run("Enforcement", s.enforcement)
	t.Run("FailurePolicy", s.failurePolicy)
}

// write replaces the configuration file at once.
func (s *stand) write(t *testing.T, content string) {
	t.Helper()
	if err := os.WriteFile(s.config+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.config+".new", s.config); err != nil {
		t.Fatal(err)
	}
}

// configure has the server use plugins' settings.
func (s *stand) configure(t *testing.T, plugins string) {
	t.Helper()
	const reloads = "fastadmit_config_reload_successes_total"
	before := s.fastadmit.Metric(t, reloads)
	s.write(t, head+"plugins:\n"+plugins)
	for deadline := time.Now().Add(2 * time.Minute); s.fastadmit.Metric(t, reloads) == before; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the configuration is not taken: %s", plugins)
		}
	}
}

func (s *stand) hook(path string) cluster.Webhook {
	return cluster.Webhook{
		URL: s.fastadmit.URL + path, CA: s.authority.PEM,
		Rules: cluster.Rules("*", "*", "*", "configmaps", "pods"),
	}
}

func (s *stand) marker() cluster.Webhook {
	return cluster.Webhook{URL: s.markers.URL, CA: s.authority.PEM}
}

func (s *stand) namespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := s.Client.CoreV1().Namespaces().Create(context.Background(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// create makes a ConfigMap.
func (s *stand) create(namespace string, data map[string]string) (*corev1.ConfigMap, error) {
	return s.Client.CoreV1().ConfigMaps(namespace).Create(context.Background(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}, Data: data}, metav1.CreateOptions{})
}

// reinvocation has the scenarios of KEP-492 with two webhooks; the third, the
// in-tree plugins, is in the API server. A webhook sets its turn to each of the
// values that the object has for it, one with each call.
func (s *stand) reinvocation(t *testing.T) {
	a, b := s.hook("/mutate/turnsa"), s.hook("/mutate/turnsb")
	a.Reinvoke, b.Reinvoke = true, true
	s.Mutating(t, s.marker(), a, b)
	calls := func(plugin string) (n int) {
		for _, decision := range []string{"allowed", "patched"} {
			n += s.fastadmit.Metric(t, fmt.Sprintf(`fastadmit_plugin_decisions_total{plugin=%q,phase="mutate",decision=%q}`, plugin,
				decision))
		}
		return n
	}
	f := func(scenario, turnsA, turnsB string, callsA, callsB int) {
		t.Helper()
		beforeA, beforeB := calls("TurnsA"), calls("TurnsB")
		stored, err := s.create("default", map[string]string{"a": turnsA, "b": turnsB})
		if err != nil {
			t.Fatal(err)
		}
		gotA, gotB := calls("TurnsA")-beforeA, calls("TurnsB")-beforeB
		if gotA != callsA || gotB != callsB {
			t.Errorf("%s: got %d calls of A and %d of B, want %d and %d", scenario, gotA, gotB, callsA, callsB)
		}
		for key, turns := range map[string]string{"a": turnsA, "b": turnsB} {
			if want := turns[strings.LastIndexByte(turns, ',')+1:]; stored.Data[key+"-now"] != want {
				t.Errorf("%s: got turn %q of %s, want %q", scenario, stored.Data[key+"-now"], key, want)
			}
		}
	}
	f("No reinvocation", "", "", 1, 1)
	f("In-tree reinvocation only", "", "1", 2, 1)
	f("Full reinvocation", "1,2", "1", 2, 2)
	f("Multiple webhooks, partial reinvocation", "1", "1", 2, 1)
	f("Multiple webhooks, full reinvocation", "1,2", "1,2", 2, 2)
}

// namespaceSelector uses labels of namespaces that the server has not read yet, and of namespaces
// that change.
func (s *stand) namespaceSelector(t *testing.T) {
	s.configure(t, "- {name: AlwaysDeny, namespaceSelector: {matchLabels: {strict: 'yes'}}}\n")
	s.Validating(t, s.marker(), s.hook("/validate/alwaysdeny"))
	denies := func(namespace string) bool {
		_, err := s.create(namespace, nil)
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		return err != nil
	}
	for i := range 20 { // each one right after its creation
		name := fmt.Sprintf("strict-%d", i)
		s.namespace(t, name, map[string]string{"strict": "yes"})
		if !denies(name) {
			t.Errorf("%s: not denied", name)
		}
		name = fmt.Sprintf("loose-%d", i)
		s.namespace(t, name, nil)
		if denies(name) {
			t.Errorf("%s: denied", name)
		}
	}
	patch := []byte(`{"metadata":{"labels":{"strict":"yes"}}}`)
	if _, err := s.Client.CoreV1().Namespaces().Patch(context.Background(), "loose-0", "application/merge-patch+json", patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); !denies("loose-0"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a changed label is not heard of")
		}
	}
}

// enforcement warns in all namespaces and denies in one.
func (s *stand) enforcement(t *testing.T) {
	s.configure(t, `
- name: AlwaysDeny
  enforcement:
  - {action: deny, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: prod}}}
  - {action: audit, objectSelector: {matchLabels: {quiet: 'yes'}}}
  - {action: warn}
`)
	s.Validating(t, s.marker(), s.hook("/validate/alwaysdeny"))
	s.namespace(t, "prod", nil)
	warned := new(warnings)
	recording := s.WithWarnings(t, warned)
	create := func(namespace, name string, labels map[string]string) error {
		*warned = nil
		_, err := recording.Client.CoreV1().ConfigMaps(namespace).Create(context.Background(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
		return err
	}
	const why = `configmaps "%s" is forbidden: admission control is denying all modifications`
	if err := create("prod", "denied", nil); !apierrors.IsForbidden(err) || err.Error() != cluster.Prefix(0)+"AlwaysDeny: "+
		fmt.Sprintf(why, "denied") {
		t.Errorf("in prod: got %v", err)
	}
	if err := create("default", "warned", nil); err != nil || len(*warned) != 1 || (*warned)[0] != "AlwaysDeny: "+
		fmt.Sprintf(why, "warned") {
		t.Errorf("elsewhere: got %v, warnings %q", err, *warned)
	}
	if err := create("default", "audited", map[string]string{"quiet": "yes"}); err != nil || len(*warned) != 0 {
		t.Errorf("where it is quiet: got %v, warnings %q", err, *warned)
	}
	for _, name := range []string{"denied", "warned", "audited"} {
		s.audited(t, name, name+": "+fmt.Sprintf(why, name))
	}
}

// audited checks the audit annotation of the creation of a ConfigMap.
func (s *stand) audited(t *testing.T, name, want string) {
	t.Helper()
	key := cluster.WebhookName(0) + "/AlwaysDeny"
	events, err := s.Audit(func(e *auditv1.Event) bool {
		return e.Verb == "create" && e.ObjectRef != nil && e.ObjectRef.Name == name && e.Annotations[key] == want
	})
	if err != nil || len(events) != 1 {
		t.Errorf("%s: got %d audit events with %s = %q, %v, want one", name, len(events), key, want, err)
	}
}

type warnings []string

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// failurePolicy lets plugins fail whose own policy is Ignore, in a webhook whose policy is Fail.
func (s *stand) failurePolicy(t *testing.T) {
	s.configure(t, "- {name: Undecided, failurePolicy: Ignore}\n- {name: Panic, failurePolicy: Ignore}\n- {name: AlwaysDeny, "+
		"objectSelector: {matchLabels: {x: y}}}\n")
	s.Validating(t, s.marker(), s.hook("/validate/ignore"))
	if _, err := s.create("default", nil); err != nil {
		t.Errorf("with the policy Ignore: %v", err)
	}
	s.configure(t, "- {name: Undecided, failurePolicy: Fail}\n- {name: Panic, failurePolicy: Ignore}\n- {name: AlwaysDeny, "+
		"objectSelector: {matchLabels: {x: y}}}\n")
	if _, err := s.create("default", nil); err != nil {
		t.Errorf("the plugin with the policy Fail has another endpoint: %v", err)
	}
	s.Validating(t, s.marker(), s.hook("/validate/fail"))
	_, err := s.create("default", nil)
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "admission plugin Undecided failed: as it is meant to") {
		t.Errorf("with the policy Fail: got %v", err)
	}
}
