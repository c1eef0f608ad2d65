package engines

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

const (
	// inputVariable names folders with policies of the engines, and with objects. Without it, there is no test.
	inputVariable = "FASTADMIT_ENGINES_INPUT"
	// definitionsVariable names files and folders with the engines' CustomResourceDefinitions.
	definitionsVariable = "FASTADMIT_ENGINES_DEFINITIONS"
	// foldersMax is how many folders with policies are applied at once. An API server cuts warnings of more than
	// 4,096 characters in all.
	foldersMax = 10
	// shownBefore is how much of two answers is shown before what differs.
	shownBefore = 300
)

// inTreeFails matches what kube-apiserver v1.37 says if a mutation puts elements of a list of the object into its result, they are
// structs in Go, and match conditions were evaluated before.
var inTreeFails = regexp.MustCompile("unsupported conversion to ref.Val: [(]v1[.]|type conversion error from struct type v1[.]|" +
	"associative list with keys may not have non-map elements")

// A library is a folder with policies, and the objects in it.
type library struct {
	policies []*unstructured.Unstructured
	objects  []*unstructured.Unstructured
}

// counts are the numbers of a run.
type counts struct{ policies, refused, unapplied, objects, unknown, said, changed, denied, inTreeFails, different int }

// TestPublic applies the policies of public repositories to a cluster with the engines' definitions, and what "fastadmit
// convert" prints for them to a cluster without fastadmit. All of them warn instead of denying, so that each object
// shows what all of them say. Both clusters must say the same of each object, and change it in the same way.
func TestPublic(t *testing.T) {
	input := filepath.SplitList(os.Getenv(inputVariable))
	if len(input) == 0 {
		t.Skip(inputVariable + " names no folders")
	}
	etcd, authority := cluster.StartEtcd(t), cluster.NewAuthority(t)
	in := etcd.StartAPIServer(t, cluster.APIServerOptions{
		Name: "kubernetes", Prefix: "a", On: []string{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"},
	})
	out := etcd.StartAPIServer(t, cluster.APIServerOptions{Name: "engines", Prefix: "b"})
	for _, definitions := range filepath.SplitList(os.Getenv(definitionsVariable)) {
		out.MustKubectl(t, "", "create", "-f", definitions)
	}
	all := libraries(t, input)
	if defined := constraintDefinitions(all); defined != "" {
		out.MustKubectl(t, defined, "create", "-f", "-")
	}
	out.AwaitCRDs(t)
	fastadmit := cluster.StartFastadmit(t, cluster.Binary, authority, "--kubeconfig", out.Kubeconfig(t),
		"--enable-admission-plugins", "ValidatingAdmissionPolicy,MutatingAdmissionPolicy,AlwaysDeny", // which is the marker
		"--admission-control-config-file", cluster.WriteFile(t, "admission.yaml", []byte(configuration)))
	fastadmit.AwaitReady(t)
	marker := cluster.Webhook{URL: fastadmit.URL, CA: authority.PEM}
	hook := func(phase string) cluster.Webhook {
		rules := cluster.Rules("CREATE", "*", "*", "*")
		return cluster.Webhook{URL: fastadmit.URL + "/" + phase + "AdmissionPolicy", CA: authority.PEM, Rules: rules}
	}
	out.Validating(t, marker, hook("validate/Validating"))
	out.Mutating(t, marker, hook("mutate/Mutating"))
	var n counts
	for _, batch := range batches(all) {
		compareBatch(t, in, out, fastadmit, batch, &n)
	}
	t.Logf("%d policies, %d more have no translation for kube-apiserver, %d are not accepted; %d objects, %d more of unknown kinds; "+
		"policies said something about %d, changed %d, and %d were denied; kube-apiserver cannot make the patch of %d; %d differ",
		n.policies, n.refused, n.unapplied, n.objects, n.unknown, n.said, n.changed, n.denied, n.inTreeFails, n.different)
	if n.policies == 0 || n.said == 0 {
		t.Error("no policy said anything")
	}
}

// libraries returns the folders with policies that have a translation, sorted by name. Objects are those of the
// folder and of the folders in it.
func libraries(t *testing.T, input []string) (all []*library) {
	t.Helper()
	found, folders := make(map[string]*library), []string{}
	items := manifest.Read(input, nil, files.Everywhere)
	for i := range items {
		item := &items[i]
		if dir := filepath.Dir(item.File); item.Fault == nil && translate.IsForeign(item.GroupVersionKind()) && !isTestFolder(dir) {
			if found[dir] == nil {
				found[dir], folders = new(library), append(folders, dir)
			}
			found[dir].policies = append(found[dir].policies, objectOf(t, item))
		}
	}
	slices.Sort(folders)
	for i := range items {
		item := &items[i]
		if item.Fault != nil || translate.IsForeign(item.GroupVersionKind()) || item.Metadata.Name == "" {
			continue
		}
		for dir := filepath.Dir(item.File); dir != "." && dir != "/"; dir = filepath.Dir(dir) {
			if l := found[dir]; l != nil {
				l.objects = append(l.objects, objectOf(t, item))
				break
			}
		}
	}
	for _, dir := range folders {
		all = append(all, found[dir])
	}
	return all
}

// batches returns the folders whose policies are applied together. A folder with policies that change objects is alone, because
// kube-apiserver runs them in random order.
func batches(all []*library) (batches [][]*library) {
	var validating []*library
	for _, l := range all {
		if slices.ContainsFunc(l.policies, func(p *unstructured.Unstructured) bool { return strings.Contains(p.GetKind(), "Mutating") }) {
			batches = append(batches, []*library{l})
		} else {
			validating = append(validating, l)
		}
	}
	return slices.AppendSeq(batches, slices.Chunk(validating, foldersMax))
}

// isTestFolder reports whether a folder has tests, whose copies of policies are variants of those above.
func isTestFolder(dir string) bool {
	return slices.ContainsFunc(strings.Split(dir, "/"), func(name string) bool { return strings.HasPrefix(name, ".") })
}

func objectOf(t *testing.T, item *manifest.Item) *unstructured.Unstructured {
	t.Helper()
	object := new(unstructured.Unstructured)
	if err := object.UnmarshalJSON(item.JSON); err != nil {
		t.Fatalf("%s: %v", item.Source, err)
	}
	return object
}

// constraintDefinitions returns the definitions that Gatekeeper makes of its templates.
func constraintDefinitions(all []*library) (text string) {
	known := make(map[string]bool)
	for _, l := range all {
		for _, p := range l.policies {
			kind, _, _ := unstructured.NestedString(p.Object, "spec", "crd", "spec", "names", "kind")
			if kind != "" && !known[kind] {
				known[kind] = true
				text += definition("constraints.gatekeeper.sh", "v1beta1", strings.ToLower(kind), kind, "Cluster")
			}
		}
	}
	return text
}

// warns makes a policy warn of what it would deny.
func warns(t *testing.T, p *unstructured.Unstructured) {
	t.Helper()
	var err error
	switch p.GetKind() {
	case "ValidatingPolicy", "NamespacedValidatingPolicy":
		err = unstructured.SetNestedStringSlice(p.Object, []string{"Warn"}, "spec", "validationActions")
	case "ConstraintTemplate", "MutatingPolicy", "NamespacedMutatingPolicy":
	default:
		if p.GroupVersionKind().Group == "constraints.gatekeeper.sh" { // it may have no spec
			err = unstructured.SetNestedField(p.Object, "warn", "spec", "enforcementAction")
		}
	}
	if err != nil {
		t.Fatalf("%s %s: %v", p.GetKind(), p.GetName(), err)
	}
}

// texts returns documents for kubectl.
func texts(all []*unstructured.Unstructured) string {
	var b strings.Builder
	for _, one := range all {
		text, _ := json.Marshal(one)
		fmt.Fprintf(&b, "---\n%s\n", text)
	}
	return b.String()
}

// converted returns the policies that have a translation for kube-apiserver, and the translations.
func converted(t *testing.T, batch []*library, n *counts) (policies []*unstructured.Unstructured, translations string) {
	t.Helper()
	known := make(map[string]bool)
	for _, l := range batch {
		for _, p := range l.policies {
			if key := p.GetKind() + "/" + p.GetNamespace() + "/" + p.GetName(); known[key] {
				continue
			} else {
				known[key] = true
			}
			if p.GroupVersionKind().Group == "kyverno.io" {
				continue // they cannot warn
			}
			warns(t, p)
			policies = append(policies, p)
		}
	}
	var documents [][]byte
	for _, p := range policies {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, text)
	}
	result, refused := translate.Translate(documents, translate.Options{Now: time.Now()}), make(map[int]bool)
	for _, problem := range result.Problems {
		refused[problem.Document] = refused[problem.Document] || !problem.IsNote
	}
	var rest []*unstructured.Unstructured
	for i, p := range policies {
		if refused[i] {
			n.refused++
		} else {
			rest = append(rest, p)
		}
	}
	if len(rest) == 0 {
		return nil, ""
	}
	return rest, convert(t, texts(rest))
}

// compareBatch compares what both clusters say of the objects of some folders.
func compareBatch(t *testing.T, in, out *cluster.APIServer, fastadmit *cluster.Fastadmit, batch []*library, n *counts) {
	t.Helper()
	policies, translations := converted(t, batch, n)
	if len(policies) == 0 {
		return
	}
	n.policies += len(policies)
	for _, p := range policies {
		for _, s := range []*cluster.APIServer{in, out} {
			withNamespace(t, s, p.GetNamespace())
		}
	}
	in.MustKubectl(t, translations, "create", "-f", "-")
	_, said, err := out.Kubectl(t, texts(policies), "create", "-f", "-")
	if err != nil {
		n.unapplied += strings.Count(said, "\nError") + 1
		t.Errorf("the engines' definitions do not accept: %s", said)
	}
	validating := strings.Count(translations, "\nkind: ValidatingAdmissionPolicy\n")
	mutating := strings.Count(translations, "\nkind: MutatingAdmissionPolicy\n")
	followed := func(validating, mutating int) {
		t.Helper()
		cluster.Await(t, "fastadmit follows the policies", func() error {
			v := fastadmit.Metric(t, `fastadmit_policies{plugin="ValidatingAdmissionPolicy"}`)
			m := fastadmit.Metric(t, `fastadmit_policies{plugin="MutatingAdmissionPolicy"}`)
			if v != validating || m != mutating {
				return fmt.Errorf("got %d and %d, want %d and %d", v, m, validating, mutating)
			}
			return nil
		})
	}
	followed(validating, mutating)
	dropped := unprintable(t, translations)
	for _, l := range batch {
		for _, object := range l.objects {
			compareObject(t, in, out, object, dropped, n)
		}
	}
	in.MustKubectl(t, translations, "delete", "--wait=false", "-f", "-")
	out.MustKubectl(t, texts(policies), "delete", "--wait=false", "-f", "-")
	followed(0, 0)
}

// withNamespace creates a namespace, with its ServiceAccount, if there is none.
func withNamespace(t *testing.T, s *cluster.APIServer, name string) {
	t.Helper()
	name = cmp.Or(name, "default")
	for _, text := range []string{
		fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name),
		fmt.Sprintf(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default","namespace":%q}}`, name),
	} {
		object := new(unstructured.Unstructured)
		if err := object.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if resource, err := s.Resource(object); err == nil {
			_, _ = resource.Create(context.Background(), object, metav1.CreateOptions{}) // it may exist
		}
	}
}

// unprintable returns the expressions with control characters, such as line breaks, as fastadmit shows them. kube-apiserver
// drops its own warnings with such characters, and the warning about an expression that fails has its text.
func unprintable(t *testing.T, translations string) (shown []string) {
	t.Helper()
	spaced := func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}
	for document := range strings.SplitSeq(translations, "\n---\n") {
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		if err := yaml.Unmarshal([]byte(document), &policy); err != nil {
			t.Fatal(err)
		}
		for _, v := range policy.Spec.Validations {
			if text := strings.Map(spaced, v.Expression); text != v.Expression {
				shown = append(shown, "expression '"+text+"' resulted in error: ")
			}
		}
	}
	return shown
}

// compareObject compares what both clusters say of an object, as a dry run, apart from the warnings that kube-apiserver
// drops. The policies of a cluster take effect some time after they were written.
func compareObject(t *testing.T, in, out *cluster.APIServer, object *unstructured.Unstructured, dropped []string, n *counts) {
	t.Helper()
	if _, err := in.Resource(object); err != nil {
		n.unknown++
		return
	}
	n.objects++
	withNamespace(t, in, object.GetNamespace())
	withNamespace(t, out, object.GetNamespace())
	var want, got answer
	for range 10 {
		want, got = answerOf(t, in, object, dropped), answerOf(t, out, object, dropped)
		if want.text == got.text || inTreeFails.MatchString(want.text) {
			break
		}
		time.Sleep(time.Second)
	}
	switch {
	case inTreeFails.MatchString(want.text):
		n.inTreeFails++
		return
	case want.text != got.text:
		n.different++
		at := 0
		for at < min(len(want.text), len(got.text)) && want.text[at] == got.text[at] {
			at++
		}
		at = max(0, at-shownBefore)
		t.Errorf("%s %s/%s:\nkube-apiserver ...%.2000s\nfastadmit      ...%.2000s", object.GetKind(), object.GetNamespace(),
			object.GetName(), want.text[at:], got.text[at:])
	}
	for _, count := range []struct {
		is bool
		n  *int
	}{{want.said, &n.said}, {want.changed, &n.changed}, {want.denied, &n.denied}} {
		if count.is {
			*count.n++
		}
	}
}

// An answer is what an API server says of an object.
type answer struct {
	text                  string
	said, changed, denied bool
	policies              []string // what policies say
	object                *unstructured.Unstructured
	err                   error
}

func answerOf(t *testing.T, s *cluster.APIServer, object *unstructured.Unstructured, dropped []string) (a answer) {
	t.Helper()
	var warnings cluster.Warnings
	resource, err := s.WithWarnings(t, &warnings).Resource(object)
	if err != nil {
		t.Fatal(err)
	}
	created, err := resource.Create(context.Background(), object.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	warnings = slices.DeleteFunc(warnings, func(w string) bool {
		return slices.ContainsFunc(dropped, func(text string) bool { return strings.Contains(w, text) })
	})
	slices.Sort(warnings)
	a.policies = slices.DeleteFunc(slices.Clone(warnings), func(w string) bool { return !isOfPolicy(w) })
	a.said, a.denied, a.object, a.err = len(a.policies) > 0, err != nil, created, err
	if err != nil {
		a.text = cluster.Shown(nil, err, "")
	} else {
		labels, _, _ := unstructured.NestedFieldNoCopy(created.Object, "metadata", "labels")
		given, _, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", "labels")
		a.changed = fmt.Sprint(labels) != fmt.Sprint(given)
		if created.GetKind() == "Job" {
			// Without labels it gets those of its template, and then both are one Go map, or equal ones if a policy changed
			// the Job: those that are added to the template later are also in the Job, or not.
			unstructured.RemoveNestedField(created.Object, "metadata", "labels")
			unstructured.RemoveNestedField(created.Object, "metadata", "managedFields")
		}
		a.text = cluster.Shown(created, nil, object.GetGenerateName())
	}
	a.text += "\n" + strings.Join(warnings, "\n")
	return a
}

func isOfPolicy(message string) bool { return strings.Contains(message, "AdmissionPolicy '") }
