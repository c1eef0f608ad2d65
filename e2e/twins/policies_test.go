package twins

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/tally"
)

// A scenario consists of policies, and of requests that are sent after them. It is a template of
// package text/template, with templateFuncs. In its text, $NS is the name of its namespace, and $S
// is the end of the names of static policies.
type scenario struct {
	// NamespaceLabels are the labels of the namespace.
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	// Given are the objects that exist before the policies.
	Given []unstructured.Unstructured `json:"given,omitempty"`
	// Documents are the policies with their bindings. Policies are evaluated for the namespace of
	// the scenario, and for cluster-scoped objects.
	Documents []unstructured.Unstructured `json:"documents"`
	// OnlyStatic is set if the order of policies matters: kube-apiserver evaluates policies,
	// bindings and parameters that are objects in any order.
	OnlyStatic bool            `json:"onlyStatic,omitempty"`
	Requests   []policyRequest `json:"requests"`

	name     string
	isStatic bool
}

// policyRequest is one that the API server gets.
type policyRequest struct {
	// Send is the method and path.
	Send string          `json:"send"`
	Body json.RawMessage `json:"body,omitempty"`
	// Type is the content type of the body, application/json if empty.
	Type string `json:"type,omitempty"`
	// As is the user who sends it, empty for one who may do everything.
	As string `json:"as,omitempty"`
	// Differs is the reason why the answers differ: in all releases, or in those before DiffersUntil.
	Differs      string `json:"differs,omitempty"`
	DiffersUntil string `json:"differsUntil,omitempty"`
}

// listed returns the reason why the answers of a release differ, empty if they must not.
func (r *policyRequest) listed(release admission.Version) string {
	if r.DiffersUntil != "" && release.Has(r.DiffersUntil) {
		return ""
	}
	return r.Differs
}

// staticSuffix is the end of the names of static policies that kube-apiserver requires.
const staticSuffix = ".static.k8s.io"

// templateFuncs are functions for templates, besides the built-in ones.
var templateFuncs = template.FuncMap{
	"list": func(all ...string) []string { return all }, "join": func(a, b []string) []string { return slices.Concat(a, b) },
	"dir": path.Dir, "base": path.Base, "lower": strings.ToLower, "quote": strconv.Quote, "repeat": strings.Repeat,
	"numbers": func(n int) []int { return make([]int, n) }, "rem": func(a, b int) int { return a % b },
}

// firstStatic is the first release with static policies.
const firstStatic = "1.36"

// readScenarios returns the scenarios in the files. If the policies of a scenario can be static, it
// is returned a second time with static policies.
func readScenarios(t *testing.T, release admission.Version) (all []*scenario) {
	t.Helper()
	files, err := filepath.Glob("testdata/policies/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		for _, static := range [...]bool{false, true} {
			s := &scenario{name: name, isStatic: static}
			suffix := ""
			if static {
				s.name, suffix = name+"-static", staticSuffix
			}
			var text strings.Builder
			if err := template.Must(template.New(name).Funcs(templateFuncs).Parse(string(content))).Execute(&text, nil); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			own := strings.NewReplacer("$NS", s.name, "$S", suffix).Replace(text.String())
			if err := yaml.UnmarshalStrict([]byte(own), s); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if !static && !s.OnlyStatic || static && !s.hasParams() && release.Has(firstStatic) {
				all = append(all, s)
			}
		}
	}
	return all
}

// hasParams reports whether there are policies with parameters, which static ones
// have not.
func (s *scenario) hasParams() bool {
	return slices.ContainsFunc(s.Documents, func(d unstructured.Unstructured) bool {
		_, kind, _ := unstructured.NestedFieldNoCopy(d.Object, "spec", "paramKind")
		_, ref, _ := unstructured.NestedFieldNoCopy(d.Object, "spec", "paramRef")
		return kind || ref
	})
}

// confine limits the policies to the namespace of the scenario.
func (s *scenario) confine(t *testing.T) {
	t.Helper()
	for i := range s.Documents {
		if strings.HasSuffix(s.Documents[i].GetKind(), "Binding") {
			continue
		}
		err := unstructured.SetNestedField(s.Documents[i].Object, s.name,
			"spec", "matchConstraints", "namespaceSelector", "matchLabels", corev1.LabelMetadataName)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// policyTwins are an API server that evaluates policies, and one that calls fastadmit,
// which evaluates the same ones.
type policyTwins struct {
	release admission.Version
	on      [2]*cluster.APIServer
	clients [2]*http.Client
	sent    []sentRequest
	// groups are the API versions of documents on each side, if it serves them in that version.
	groups [2]string
	// annotations returns the audit annotations of a request on a side.
	annotations func(side int, annotations map[string]string) string
}

// sentRequest is a request that both sides have answered.
type sentRequest struct {
	scenario *scenario
	request  *policyRequest
	id       string // in the audit logs
	answers  [2]string
}

// policyGroups are the API groups of documents on either side.
var policyGroups = [2]string{"admissionregistration.k8s.io/v1", "policies.fastadmit.io/v1"}

const policyConfiguration = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration: {apiVersion: %[1]s, kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: %[2]s/validating%[3]s}
- name: MutatingAdmissionPolicy
  configuration: {apiVersion: %[1]s, kind: MutatingAdmissionPolicyConfiguration, staticManifestsDir: %[2]s/mutating%[3]s}
`

// startPolicies starts them with the documents of the scenarios.
func startPolicies(t *testing.T, release admission.Version, scenarios []*scenario) *policyTwins {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range staticFolders {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range scenarios {
		if s.isStatic {
			s.writeStatic(t, dir)
		}
	}
	ours := cluster.WriteFile(t, "fastadmit.yaml", fmt.Appendf(nil, policyConfiguration, "fastadmit.io/v1alpha1", dir,
		", customResources: true"))
	etcd, authority := cluster.StartEtcd(t), cluster.NewAuthority(t)
	tw := &policyTwins{release: release, groups: policyGroups, annotations: shownAnnotations}
	flags := flagsOf(release)
	flags["authorization-mode"] = "RBAC"
	withStatic := maps.Clone(flags)
	if release.Has(firstStatic) {
		withStatic["admission-control-config-file"] = cluster.WriteFile(t, "in-tree.yaml",
			fmt.Appendf(nil, policyConfiguration, "apiserver.config.k8s.io/v1", dir, ""))
	}
	tw.on[0] = etcd.StartAPIServer(t, cluster.APIServerOptions{
		Name: "in-tree", Prefix: "a", On: policyPlugins, Release: release, Flags: withStatic,
	})
	tw.on[1] = etcd.StartAPIServer(t, cluster.APIServerOptions{Name: "with-fastadmit", Prefix: "b", Release: release, Flags: flags})
	tw.on[1].MustKubectl(t, "", "apply", "-f", "../../deploy/chart/files/policies.crds.yaml")
	for i, s := range tw.on {
		s.MustKubectl(t, "", "apply", "-f", "testdata/policies.crds/")
		s.AwaitCRDs(t)
		tw.connect(t, i)
	}
	fastadmit := cluster.StartFastadmit(t, cluster.Binary, authority, "--kubeconfig", tw.on[1].Kubeconfig(t),
		"--admission-control-config-file", ours,
		"--enable-admission-plugins", strings.Join(append(policyPlugins, "AlwaysDeny"), ","), "--allow-unauthenticated-writes")
	wantRelease(t, fastadmit, release)
	marker, hook := cluster.Webhook{URL: fastadmit.URL, CA: authority.PEM},
		cluster.Webhook{CA: authority.PEM, Equivalent: true, Timeout: 30}
	hook.Rules = slices.Concat(cluster.Everything(), cluster.Rules("*", "autoscaling", "v2", "*/*"))
	hook.Rules[0].APIGroups = []string{"", "apps", "batch", "example.com", "networking.k8s.io", "policies.fastadmit.io",
		"policy", "rbac.authorization.k8s.io", "scheduling.k8s.io"}
	hook.URL = fastadmit.URL + "/mutate/MutatingAdmissionPolicy"
	tw.on[1].Mutating(t, marker, hook)
	hook.URL = fastadmit.URL + "/validate/ValidatingAdmissionPolicy"
	tw.on[1].Validating(t, marker, hook)
	return tw
}

// connect makes the client of a side.
func (tw *policyTwins) connect(t *testing.T, side int) {
	t.Helper()
	client, err := rest.HTTPClientFor(tw.on[side].Config)
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = time.Minute
	tw.clients[side] = client
}

// staticFolders are the folders of static policies.
var staticFolders = []string{"validating", "mutating"}

// writeStatic writes the documents into folders.
func (s *scenario) writeStatic(t *testing.T, dir string) {
	t.Helper()
	s.confine(t)
	for i := range s.Documents {
		d := &s.Documents[i]
		folder := staticFolders[0]
		if strings.HasPrefix(d.GetKind(), "Mutating") {
			folder = staticFolders[1]
		}
		content, err := d.MarshalJSON()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, folder, fmt.Sprintf("%s-%d.json", s.name, i)), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// prepare creates the objects of the scenarios on both sides, the documents last.
func (tw *policyTwins) prepare(t *testing.T, scenarios []*scenario) {
	t.Helper()
	for _, s := range tw.on {
		if err := allow(s, "alice"); err != nil {
			t.Fatal(err)
		}
		for _, own := range scenarios {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own.name, Labels: own.NamespaceLabels}}
			if _, err := s.Client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			for i := range own.Given {
				if err := createWithStatus(s, own.Given[i].DeepCopy()); err != nil {
					t.Fatalf("%s: %v", own.name, err)
				}
			}
		}
	}
	for _, own := range scenarios {
		if !own.isStatic {
			own.confine(t)
			tw.apply(t, own)
		}
	}
	tw.awaitPolicies(t)
}

// allow lets a user do everything with namespaced objects except Secrets.
func allow(s *cluster.APIServer, user string) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "some"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "apps", "example.com"}, Verbs: []string{"create", "get", "update", "patch"},
			Resources: []string{"configmaps", "pods", "deployments", "widgets"}},
		{NonResourceURLs: []string{"/allowed"}, Verbs: []string{"get"}},
	}}
	if _, err := s.Client.RbacV1().ClusterRoles().Create(context.Background(), role, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "some"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "some"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	_, err := s.Client.RbacV1().ClusterRoleBindings().Create(context.Background(), binding, metav1.CreateOptions{})
	return err
}

// apply writes the documents of a scenario on both sides. If one side refuses a document, the other
// must refuse it too, and it is removed from both.
func (tw *policyTwins) apply(t *testing.T, own *scenario) {
	t.Helper()
	for i := range own.Documents {
		var errs [2]error
		for side, s := range tw.on {
			errs[side] = create(s, tw.document(side, &own.Documents[i]))
		}
		if errs[0] != nil && errs[1] == nil && tw.lacksFunction(errs[0]) {
			tw.remove(t, 1, &own.Documents[i])
			continue
		}
		if (errs[0] == nil) != (errs[1] == nil) {
			text, _ := yaml.Marshal(own.Documents[i].Object)
			t.Errorf("%s: fastadmit says %v\nkube-apiserver says %v\nto %s", own.name, errs[1], errs[0], text)
		}
		if errs[0] != nil && !own.generated() && tw.release == admission.Newest() { // older ones lack functions of expressions
			t.Errorf("%s: %v", own.name, errs[0])
		}
	}
}

// newFunctions match errors about what a minor release evaluates, and refuses in policies that are written.
var newFunctions = map[int]*regexp.Regexp{
	33: regexp.MustCompile(`undeclared reference to '(semver|isSemver)'`),
	34: regexp.MustCompile(`undeclared reference to '(range|distinct|flatten|slice|sort|sortBy|reverse)'`),
}

// lacksFunction reports whether kube-apiserver refuses a policy because of a new function, as docs/versions.md says.
func (tw *policyTwins) lacksFunction(err error) bool {
	functions := newFunctions[tw.release.Minor()]
	return functions != nil && functions.MatchString(err.Error())
}

// remove deletes a policy or a binding on one side.
func (tw *policyTwins) remove(t *testing.T, side int, of *unstructured.Unstructured) {
	t.Helper()
	resource, err := tw.on[side].Resource(tw.document(side, of))
	if err == nil {
		err = resource.Delete(t.Context(), of.GetName(), metav1.DeleteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// document returns a policy or a binding as it is on one side.
func (tw *policyTwins) document(side int, of *unstructured.Unstructured) *unstructured.Unstructured {
	d := of.DeepCopy()
	d.SetAPIVersion(tw.groups[side])
	serve(tw.on[side], d)
	return d
}

func (s *scenario) generated() bool { return strings.HasPrefix(s.name, "generated") }

// awaitPolicies waits until both evaluate the documents. They do once they evaluate a policy of
// each kind that was written last.
func (tw *policyTwins) awaitPolicies(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("testdata/policies.marker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var own scenario
	if err := yaml.UnmarshalStrict(fmt.Appendf(nil, string(text), rand.Text()), &own); err != nil {
		t.Fatal(err)
	}
	tw.apply(t, &own)
	for side := range tw.on {
		cluster.Await(t, "the policies", func() error {
			answer, err := tw.send(side, &own.Requests[0], "")
			if err == nil && !strings.Contains(answer, "the last policy is there") || !strings.Contains(answer, `"mutated":"yes"`) {
				err = fmt.Errorf("got %s", answer)
			}
			return err
		})
		for i := range own.Documents {
			tw.remove(t, side, &own.Documents[i])
		}
	}
}

// send sends a request to one side, and returns the answer: status, warnings and object, with the
// random parts replaced.
func (tw *policyTwins) send(side int, r *policyRequest, id string) (string, error) {
	method, path, _ := strings.Cut(r.Send, " ")
	request, err := http.NewRequest(method, tw.on[side].Config.Host+path, bytes.NewReader(r.Body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	if r.Type != "" {
		request.Header.Set("Content-Type", r.Type)
	}
	if r.As != "" {
		request.Header.Set("Impersonate-User", r.As)
	}
	if id != "" {
		request.Header.Set("Audit-ID", id)
	}
	response, err := tw.clients[side].Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	object := new(unstructured.Unstructured)
	if err := json.NewDecoder(response.Body).Decode(&object.Object); err != nil {
		return "", fmt.Errorf("%s: %w", response.Status, err)
	}
	warnings := response.Header.Values("Warning")
	slices.Sort(warnings) // kube-apiserver evaluates policies in any order
	text := fmt.Sprintf("%s\nwarnings %q\n", response.Status, warnings)
	if object.GetKind() != "Status" {
		sortManagers(object)
		return text + cluster.Normal(object), nil
	}
	var status metav1.Status
	content, err := object.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(content, &status)
	}
	cluster.Unattributed(&status)
	return text + cluster.Normal(status), err
}

// sortManagers sorts managed fields by content that is the same on both sides. An API server sorts
// them by time, in seconds.
func sortManagers(object *unstructured.Unstructured) {
	managers := object.GetManagedFields()
	slices.SortStableFunc(managers, func(a, b metav1.ManagedFieldsEntry) int {
		return cmp.Or(strings.Compare(a.Manager, b.Manager), strings.Compare(string(a.Operation), string(b.Operation)),
			strings.Compare(a.Subresource, b.Subresource), strings.Compare(a.APIVersion, b.APIVersion))
	})
	if managers != nil {
		object.SetManagedFields(managers)
	}
}

// TestPolicies compares kube-apiserver's own evaluation of policies with fastadmit's.
func TestPolicies(t *testing.T) {
	t.Parallel()
	cluster.EachRelease(t, comparePolicies)
}

func comparePolicies(t *testing.T, release admission.Version) {
	scenarios := slices.Concat(readScenarios(t, release), shippedScenarios(t))
	generated := generatedScenarios(t)
	scenarios = append(scenarios, generated...)
	tw := startPolicies(t, release, scenarios)
	tw.prepare(t, scenarios)
	row := tally.Row{Plugin: "policies", Test: ofRelease("twins", release)}
	generatedRow := tally.Row{Plugin: "policies", Test: ofRelease("generated twins", release)}
	for _, own := range scenarios {
		for i := range own.Requests {
			tw.ask(own, &own.Requests[i])
		}
	}
	tw.addAnnotations(t)
	for i := range tw.sent {
		sent := &tw.sent[i]
		into := &row
		if sent.scenario.generated() {
			into = &generatedRow
		}
		into.Cases++
		what := fmt.Sprintf("%s: %s as %s", sent.scenario.name, sent.request.Send, sent.request.As)
		switch listed, differ := sent.request.listed(release), sent.answers[0] != sent.answers[1]; {
		case listed != "" && differ:
			into.Listed = append(into.Listed, listed)
		case listed != "":
			t.Errorf("%s: no longer differs, take it off the list", what)
		case differ:
			into.Different = append(into.Different, what)
			text := ""
			if sent.scenario.generated() {
				documents, _ := yaml.Marshal(sent.scenario.Documents)
				text = string(documents)
			}
			t.Errorf("%s\n%s\n%s\nwith fastadmit %s\nin-tree        %s", what, sent.request.Body, text, sent.answers[1], sent.answers[0])
		}
	}
	mustWrite(t, row)
	mustWrite(t, generatedRow)
	if release.Has(firstStatic) { // there are fewer without static policies
		tw.wantAll(t)
	}
	tw.compareTypes(t)
	tw.paramKindGone(t, scenarios)
}

// wantAll checks that the requests had each outcome at least once.
func (tw *policyTwins) wantAll(t *testing.T) {
	t.Helper()
	count := func(part string) (n int) {
		for i := range tw.sent {
			if strings.Contains(tw.sent[i].answers[0], part) {
				n++
			}
		}
		return n
	}
	for part, want := range map[string]int{
		"denied request": 100, "\n{": 100, "warnings [\"299": 40, "validation_failure": 40, "403 ": 10, "413 ": 2, "422 ": 40,
	} {
		if got := count(part); got < want {
			t.Errorf("got %d answers with %q, want %d", got, part, want)
		}
	}
}

// ask sends a request to both sides.
func (tw *policyTwins) ask(own *scenario, r *policyRequest) {
	sent := sentRequest{scenario: own, request: r, id: fmt.Sprintf("00000000-0000-0000-0000-%012d", len(tw.sent))}
	var both sync.WaitGroup
	for side := range tw.on {
		both.Go(func() {
			var err error
			if sent.answers[side], err = tw.send(side, r, sent.id); err != nil {
				sent.answers[side] = "no answer: " + err.Error() // kube-apiserver's handler panicked
			}
		})
	}
	both.Wait()
	tw.sent = append(tw.sent, sent)
}

// addAnnotations adds the audit annotations to the answers.
func (tw *policyTwins) addAnnotations(t *testing.T) {
	t.Helper()
	for side, s := range tw.on {
		events := make(map[string]map[string]string)
		cluster.Await(t, "all audit events", func() error {
			_, err := s.Audit(func(e *auditv1.Event) bool {
				if e.Stage == auditv1.StageResponseComplete || e.Stage == auditv1.StagePanic {
					events[string(e.AuditID)] = e.Annotations
				}
				return false
			})
			for i := range tw.sent {
				if events[tw.sent[i].id] == nil {
					return fmt.Errorf("%w no event of %s %s", err, tw.sent[i].request.Send, tw.sent[i].id)
				}
			}
			return err
		})
		for i := range tw.sent {
			tw.sent[i].answers[side] += "\nannotations " + tw.annotations(side, events[tw.sent[i].id])
		}
	}
}

// shownAnnotations returns the annotations of policies, with the keys that a webhook has.
func shownAnnotations(_ int, annotations map[string]string) string {
	own := make(map[string]string)
	for key, value := range annotations {
		prefix, name, _ := strings.Cut(key, "/")
		switch prefix {
		case "authorization.k8s.io", "apiserver.latency.k8s.io", "mutation.webhook.admission.k8s.io":
		case "validation.policy.admission.k8s.io", cluster.WebhookName(0):
			if !cluster.IsAttribution(name) {
				own[name] = inOrder(value)
			}
		default:
			own[prefix+"."+name] = inOrder(value)
		}
	}
	return cluster.Normal(own)
}

// inOrder sorts the values that several parameters gave an annotation.
func inOrder(value string) string {
	values := strings.Split(value, ", ")
	slices.Sort(values)
	return strings.Join(values, ", ")
}
