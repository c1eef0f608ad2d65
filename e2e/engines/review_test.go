package engines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// nativeMax is how many of Kubernetes' own policies are applied at once, for the reason of foldersMax.
const nativeMax = 15

// TestReview compares kube-apiserver with "fastadmit review", which has no cluster. Both get the translations of the policies of
// TestPublic, and their objects. Then they get Kubernetes' own policies in the same folders, and all objects. What the
// policies say must be equal, and the objects that they change. Objects that kube-apiserver itself refuses are not compared.
func TestReview(t *testing.T) {
	input := filepath.SplitList(os.Getenv(inputVariable))
	if len(input) == 0 {
		t.Skip(inputVariable + " names no folders")
	}
	s := cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{
		On: []string{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"},
	})
	own := readNative(t, input)
	own.create(t, s)
	var n reviewCounts
	for policies := range slices.Chunk(own.policies, nativeMax) {
		reviewBatch(t, s, bound(policies), slices.Concat(own.definitions, own.params), own.objects, &n)
	}
	t.Logf("Kubernetes' own policies, %d at once: %s", nativeMax, &n)
	n = reviewCounts{}
	for _, batch := range batches(libraries(t, input)) {
		_, translations := converted(t, batch, new(counts))
		if translations == "" {
			continue
		}
		var objects, params []*unstructured.Unstructured
		for _, l := range batch {
			for _, object := range l.objects {
				if object.GetKind() == "ConfigMap" && strings.Contains(translations, "paramKind:") { // review finds parameters in its input
					params = append(params, object)
				} else {
					objects = append(objects, object)
				}
			}
		}
		for _, param := range params {
			withNamespace(t, s, param.GetNamespace())
			s.MustKubectl(t, texts([]*unstructured.Unstructured{param}), "apply", "-f", "-")
		}
		reviewBatch(t, s, translations, params, objects, &n)
	}
	t.Logf("translations: %s", &n)
}

// reviewCounts are numbers of objects.
type reviewCounts struct{ objects, refused, inTreeFails, said, changed, different int }

func (n *reviewCounts) String() string {
	return fmt.Sprintf("%d objects are compared; policies said something about %d and changed %d; %d differ. kube-apiserver refuses %d "+
		"more, and cannot make the patch of %d", n.objects, n.said, n.changed, n.different, n.refused, n.inTreeFails)
}

// native are Kubernetes' own policies in the input, the parameters that they read, with their definitions, and all other
// objects that are no policies.
type native struct{ policies, definitions, params, objects []*unstructured.Unstructured }

func readNative(t *testing.T, input []string) (own native) {
	t.Helper()
	items, isParam := manifest.Read(input, nil, files.Everywhere), make(map[string]bool) // by kind
	for i := range items {
		if item := &items[i]; item.Fault == nil && item.Kind == "ValidatingAdmissionPolicy" {
			policy := objectOf(t, item)
			own.policies = append(own.policies, policy)
			if kind, ok, _ := unstructured.NestedString(policy.Object, "spec", "paramKind", "kind"); ok {
				isParam[kind] = true
			}
		}
	}
	seen := make(map[string]bool)
	isNew := func(key string) bool {
		defer func() { seen[key] = true }()
		return !seen[key]
	}
	for i := range items {
		item := &items[i]
		if item.Fault != nil || item.Metadata.Name == "" || strings.Contains(item.Kind, "AdmissionPolicy") ||
			translate.IsForeign(item.GroupVersionKind()) || !isNew(string(item.JSON)) {
			continue
		}
		object := objectOf(t, item)
		defines, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
		switch {
		case !isParam[item.Kind]:
			own.objects = append(own.objects, object)
			if discovery.IsCRD(item.GroupVersionKind()) && isParam[defines] {
				own.definitions = append(own.definitions, object)
			}
		case isNew(item.Kind + "/" + item.Metadata.Name):
			own.params = append(own.params, object)
		}
	}
	return own
}

// create creates the parameters.
func (own *native) create(t *testing.T, s *cluster.APIServer) {
	t.Helper()
	if len(own.params) > 0 {
		s.MustKubectl(t, texts(own.definitions), "create", "-f", "-")
		s.AwaitCRDs(t)
		s.MustKubectl(t, texts(own.params), "create", "-f", "-")
	}
}

// bound returns policies, each with a binding that warns and has all parameters. Their names are short, because warnings have them.
func bound(policies []*unstructured.Unstructured) (documents string) {
	for i, p := range policies {
		p.SetName("p" + strconv.Itoa(i))
		spec := map[string]any{"policyName": p.GetName(), "validationActions": []any{"Warn"}}
		if _, ok, _ := unstructured.NestedMap(p.Object, "spec", "paramKind"); ok {
			spec["paramRef"] = map[string]any{"selector": map[string]any{}, "parameterNotFoundAction": "Deny"}
		}
		documents += texts([]*unstructured.Unstructured{p, {Object: map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
			"metadata": map[string]any{"name": p.GetName()}, "spec": spec,
		}}})
	}
	return documents
}

// reviewBatch compares what is said of objects. Those about which policies say something are first, because the policies of a cluster
// take effect some time after they were written.
func reviewBatch(t *testing.T, s *cluster.APIServer, policies string, params, objects []*unstructured.Unstructured, n *reviewCounts) {
	t.Helper()
	objects = slices.DeleteFunc(slices.Clone(objects), func(object *unstructured.Unstructured) bool {
		_, err := s.Resource(object)
		return err != nil
	})
	s.MustKubectl(t, policies, "create", "-f", "-")
	mayChange := strings.Contains(policies, "kind: MutatingAdmissionPolicy\n")
	all := review(t, policies+texts(params), objects, mayChange)
	slices.SortStableFunc(all, func(a, b *reviewed) int { return len(b.Warnings) + len(b.Patch) - len(a.Warnings) - len(a.Patch) })
	namespaces := make(map[string]bool)
	for _, one := range all {
		if namespace := one.given.GetNamespace(); !namespaces[namespace] {
			namespaces[namespace] = true
			withNamespace(t, s, namespace)
		}
		compareReview(t, s, one, mayChange, unprintable(t, policies), n)
	}
	s.MustKubectl(t, policies, "delete", "--wait=false", "-f", "-")
}

// A reviewed object is what fastadmit review says of it, and the object as it would be stored, unless it is denied.
type reviewed struct {
	report.Result
	given, stored *unstructured.Unstructured
}

// review runs fastadmit review with files of policies and objects. Namespaces are reviewed alone: the other objects would see
// them, and in the cluster they are only dry runs.
func review(t *testing.T, policies string, objects []*unstructured.Unstructured, mayChange bool) (all []*reviewed) {
	t.Helper()
	file, isNamespace := cluster.WriteFile(t, "policies.yaml", []byte(policies)), make(map[bool][]*unstructured.Unstructured)
	for _, object := range objects {
		is := object.GetKind() == "Namespace"
		isNamespace[is] = append(isNamespace[is], object)
	}
	for _, given := range isNamespace {
		var said struct{ Results []*report.Result }
		if err := json.Unmarshal(runReview(t, file, given, "json"), &said); err != nil || len(said.Results) != len(given) {
			t.Fatalf("got %d results for %d objects, %v", len(said.Results), len(given), err)
		}
		var documents [][]byte // a comment for what is denied
		if mayChange {
			documents = bytes.Split(runReview(t, file, given, "object"), []byte("\n---\n"))
		}
		for i, result := range said.Results {
			one := &reviewed{Result: *result, given: given[i]}
			all = append(all, one)
			if mayChange && result.Message == "" {
				if err := yaml.Unmarshal(documents[i], &one.stored); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return all
}

// runReview returns what fastadmit review prints of objects.
func runReview(t *testing.T, policies string, objects []*unstructured.Unstructured, format string) []byte {
	t.Helper()
	cmd := exec.Command(cluster.Binary, "review", "-", "--policies", policies, "--no-workload-pods", "--as", "admin",
		"--as-group", "system:masters", "-o", format)
	cmd.Stdin = strings.NewReader(texts(objects))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && len(out) == 0 {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return out
}

// serverSet are the fields that kube-apiserver sets after the policies.
var serverSet = [][]string{
	{"status"}, {"metadata", "uid"}, {"metadata", "creationTimestamp"}, {"metadata", "managedFields"}, {"metadata", "generation"},
	{"spec", "finalizers"}, // of a Namespace
}

// appArmor is in annotations of which kube-apiserver makes fields of containers.
const appArmor = "container.apparmor.security.beta.kubernetes.io/"

// compareReview compares what kube-apiserver and fastadmit review say of an object, and the object if policies may change it.
func compareReview(t *testing.T, s *cluster.APIServer, got *reviewed, mayChange bool, dropped []string, n *reviewCounts) {
	t.Helper()
	var want answer
	var wants, gots []string
	for range 10 {
		want = answerOf(t, s, got.given, dropped)
		if want.err != nil && !isOfPolicy(want.err.Error()) {
			n.refused++
			return
		}
		if inTreeFails.MatchString(want.text) {
			n.inTreeFails++
			return
		}
		mayChange = mayChange && !strings.Contains(want.text, appArmor)
		wants, gots = want.reviewable(mayChange), got.text(mayChange, dropped)
		if slices.Equal(wants, gots) {
			break
		}
		time.Sleep(time.Second)
	}
	n.objects++
	if want.said {
		n.said++
	}
	if got.Decision == report.Patched {
		n.changed++
	}
	if !slices.Equal(wants, gots) {
		n.different++
		t.Errorf("%s %s/%s:\nkube-apiserver only   %q\nfastadmit review only %q", got.Kind, got.Namespace, got.Name,
			without(wants, gots), without(gots, wants))
	}
}

// without returns the lines that are not among others.
func without(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) })
}

// reviewable returns what fastadmit review must say too.
func (a *answer) reviewable(mayChange bool) []string {
	lines := a.policies
	if a.err != nil {
		lines = append(lines, a.err.Error())
	} else if mayChange {
		lines = append(lines, stored(a.object))
	}
	return lines
}

// text returns what fastadmit review says, apart from the warnings that kube-apiserver drops.
func (r *reviewed) text(mayChange bool, dropped []string) (lines []string) {
	for i := range r.Warnings {
		w := &r.Warnings[i]
		if w.Plugin != "" && !slices.ContainsFunc(dropped, func(text string) bool { return strings.Contains(w.Message, text) }) {
			lines = append(lines, w.Message)
		}
	}
	slices.Sort(lines)
	if r.Message != "" {
		lines = append(lines, r.Message)
	} else if mayChange {
		lines = append(lines, stored(r.stored))
	}
	return lines
}

// stored returns an object without what only kube-apiserver sets. A Job gets labels with its uid.
func stored(object *unstructured.Unstructured) string {
	object = object.DeepCopy()
	for _, path := range serverSet {
		unstructured.RemoveNestedField(object.Object, path...)
	}
	if object.GetKind() == "Service" { // the addresses are those of the cluster
		for _, field := range []string{"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} {
			unstructured.RemoveNestedField(object.Object, "spec", field)
		}
		ports, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "ports")
		list, _ := ports.([]any)
		for _, port := range list {
			delete(port.(map[string]any), "nodePort")
		}
	}
	if object.GetKind() == "Job" {
		unstructured.RemoveNestedField(object.Object, "metadata", "labels")
		unstructured.RemoveNestedField(object.Object, "spec", "selector")
		path := []string{"spec", "template", "metadata", "labels"}
		labels, _, _ := unstructured.NestedStringMap(object.Object, path...)
		maps.DeleteFunc(labels, func(key, _ string) bool {
			return strings.HasSuffix(key, "controller-uid") || strings.HasSuffix(key, "job-name")
		})
		unstructured.RemoveNestedField(object.Object, path...)
		if len(labels) > 0 {
			_ = unstructured.SetNestedStringMap(object.Object, labels, path...)
		}
	}
	return cluster.Normal(object)
}
