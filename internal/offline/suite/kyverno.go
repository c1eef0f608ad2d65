package suite

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/policies"
	"github.com/fastadmit/fastadmit/internal/offline/review"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// The usual names of Kyverno's tests.
const (
	kyvernoFile   = "kyverno-test.yaml"
	kyvernoFolder = ".kyverno-test"
	// requestOperation is the variable of a test that has the operation of the request.
	requestOperation = "request.operation"
)

// A kyvernoTest is a Test of cli.kyverno.io.
type kyvernoTest struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Policies       []string        `json:"policies"`
	Resources      []string        `json:"resources"`
	Exceptions     []string        `json:"exceptions"`
	ParamResources []string        `json:"paramResources"`
	Variables      string          `json:"variables"`
	Values         *kyvernoValues  `json:"values"`
	UserInfo       string          `json:"userinfo"`
	Context        string          `json:"context"`
	Results        []kyvernoResult `json:"results"`

	TargetResources json.RawMessage `json:"targetResources"`
	JSONPayload     json.RawMessage `json:"jsonPayload"`
	JSONPayloads    json.RawMessage `json:"jsonPayloads"`
	HTTPPayloads    json.RawMessage `json:"httpPayloads"`
	EnvoyPayloads   json.RawMessage `json:"envoyPayloads"`
}

type kyvernoValues struct {
	NamespaceSelector []struct {
		Name   string         `json:"name"`
		Labels map[string]any `json:"labels"`
	} `json:"namespaceSelector"`
	Namespaces   []map[string]any `json:"namespaces"`
	GlobalValues map[string]any   `json:"globalValues"`
	// Policies has values for pairs of a policy and an object, which Kyverno reads for ClusterPolicies and Policies.
	Policies []struct {
		Name      string `json:"name"`
		Resources []struct {
			Name   string         `json:"name"`
			Values map[string]any `json:"values"`
		} `json:"resources"`
	} `json:"policies"`
}

type kyvernoResult struct {
	Policy        string   `json:"policy"`
	Rule          string   `json:"rule"`
	Resources     []string `json:"resources"`
	ResourceSpecs []struct {
		Group     string `json:"group"`
		Version   string `json:"version"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"resourceSpecs"`
	Result          string `json:"result"`
	Operation       string `json:"operation"`
	PatchedResource string `json:"patchedResource"`
	Patched         string `json:"patchedResources"`
	FailOnMissing   bool   `json:"failOnMissingResources"`

	specified []int // the objects of resourceSpecs
	names     bool  // whether it names an object
}

// A kyvernoRun has the documents of a test, and the verdicts of the policies, by operation.
type kyvernoRun struct {
	*foreignFile
	test        *kyvernoTest
	once        sync.Once
	err         error
	policies    []*translate.Policy
	items       []manifest.Item // the policies' documents
	foreign     []int           // the indexes of the policies' documents that are of other engines
	objects     []manifest.Item
	byName      map[string][]int // the indexes of objects
	inFile      map[string]int   // how many objects the files have
	state       []manifest.Item  // the first ones are from paramResources
	params      int              // how many of those there are
	user        review.User
	operation   codec.Operation
	operations  map[[2]string]codec.Operation // by the names of a policy and an object
	mu          sync.Mutex
	evaluations map[codec.Operation]*evaluation
}

func (f *foreignFile) kyverno() (cases []check, err error) {
	run, err := f.kyvernoRun()
	if err != nil {
		return nil, err
	}
	run.eachCase(func(name string, row *kyvernoResult, path string, resources []string) {
		cases = append(cases, check{name: name, line: f.document.Line(path),
			run: func(ctx context.Context, r *Runner) ([]string, error) { return run.check(ctx, r, row, path, resources) }})
	})
	return cases, nil
}

// kyvernoRun decodes the test.
func (f *foreignFile) kyvernoRun() (*kyvernoRun, error) {
	run := &kyvernoRun{foreignFile: f, test: new(kyvernoTest), evaluations: make(map[codec.Operation]*evaluation)}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(f.text, run.test); err != nil {
		return nil, f.document.Errorf("", "%v", err)
	}
	for field, given := range map[string]json.RawMessage{
		"targetResources": run.test.TargetResources, "jsonPayload": run.test.JSONPayload, "jsonPayloads": run.test.JSONPayloads,
		"httpPayloads": run.test.HTTPPayloads, "envoyPayloads": run.test.EnvoyPayloads,
	} {
		if given != nil {
			return nil, f.document.Errorf(field, "only reviews of objects are tested here: run this test with Kyverno")
		}
	}
	if len(run.test.Results) == 0 {
		return nil, f.document.Errorf("results", "got none, want at least one")
	}
	return run, nil
}

// eachCase calls visit for each resource of each row, and with nil for a row without resources.
func (k *kyvernoRun) eachCase(visit func(name string, row *kyvernoResult, path string, resources []string)) {
	for i := range k.test.Results {
		row, path := &k.test.Results[i], index("results", i)
		base := strings.TrimSuffix(row.Policy+"/"+row.Rule, "/")
		for _, resource := range row.Resources {
			visit(fmt.Sprintf("%s/%s#%d", base, resource, i+1), row, path, []string{resource})
		}
		if len(row.Resources) == 0 {
			visit(fmt.Sprintf("%s#%d", base, i+1), row, path, nil)
		}
	}
}

// load reads the files that the test names, and translates the policies.
func (k *kyvernoRun) load() (err error) {
	t := k.test
	k.items, err = k.read("policies", t.Policies...)
	exceptions, err2 := k.read("exceptions", t.Exceptions...)
	objects, err3 := k.read("resources", t.Resources...)
	params, err4 := k.read("paramResources", t.ParamResources...)
	values, err5 := k.values()
	if err = errors.Join(err, err2, err3, err4, err5); err != nil {
		return err
	}
	known := make(map[string]bool)
	k.inFile, k.byName = make(map[string]int), make(map[string][]int)
	for _, item := range objects {
		k.inFile[item.File]++
		if key := keyOf(&item); !known[key] {
			known[key] = true
			k.byName[item.Metadata.Name] = append(k.byName[item.Metadata.Name], len(k.objects))
			k.objects = append(k.objects, item)
		}
	}
	k.state = append(k.state, params...)
	k.params = len(params)
	if values != nil {
		if err := k.useValues(values); err != nil {
			return err
		}
	}
	if err := errors.Join(k.readUser(), k.readContext()); err != nil {
		return err
	}
	for i := range t.Results {
		k.resolve(&t.Results[i])
	}
	k.items = append(k.items, exceptions...)
	for i := range k.items {
		if translate.IsForeign(k.items[i].GroupVersionKind()) {
			k.foreign = append(k.foreign, i)
		}
	}
	translated := policies.Translate(k.items, translate.Options{Uncovered: true, Functions: true, Reads: true})
	k.policies = translated.Policies
	return errors.Join(translated.Errors...)
}

// keyOf identifies an object as the test does: objects of all kinds without a namespace are in default.
func keyOf(item *manifest.Item) string {
	return strings.Join([]string{item.APIVersion, item.Kind, cmp.Or(item.Metadata.Namespace, metav1.NamespaceDefault), item.Metadata.Name}, ",")
}

// values returns the variables of the test.
func (k *kyvernoRun) values() (*kyvernoValues, error) {
	if k.test.Variables == "" {
		return k.test.Values, nil
	}
	items, err := k.read("variables", k.test.Variables)
	if err != nil || len(items) != 1 {
		return nil, cmp.Or(err, k.document.Errorf("variables", "got %d documents, want one", len(items)))
	}
	values := new(kyvernoValues)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(items[0].JSON, values); err != nil {
		return nil, k.document.Errorf("variables", "%v", err)
	}
	return values, nil
}

func (k *kyvernoRun) useValues(values *kyvernoValues) error {
	if operation, ok := values.GlobalValues[requestOperation].(string); ok {
		k.operation = codec.Operation(operation)
	}
	k.operations = make(map[[2]string]codec.Operation)
	for _, p := range values.Policies {
		for _, r := range p.Resources {
			if operation, ok := r.Values[requestOperation].(string); ok {
				k.operations[[2]string{p.Name, r.Name}] = codec.Operation(operation)
			}
		}
	}
	var errs []error
	add := func(name string, object map[string]any) {
		metadata, _ := object["metadata"].(map[string]any)
		if metadata == nil {
			metadata = make(map[string]any)
		}
		labels, _ := metadata["labels"].(map[string]any)
		if labels == nil {
			labels = make(map[string]any)
		}
		labels[corev1.LabelMetadataName] = name
		metadata["name"], metadata["labels"] = name, labels
		text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
		errs = append(errs, err)
		k.state = append(k.state, manifest.Parse(k.file, text)...)
	}
	for _, n := range values.NamespaceSelector {
		add(n.Name, map[string]any{"metadata": map[string]any{"labels": n.Labels}})
	}
	for _, n := range values.Namespaces {
		metadata, _ := n["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		add(name, n)
	}
	return errors.Join(errs...)
}

func (k *kyvernoRun) readUser() error {
	if k.test.UserInfo == "" {
		return nil
	}
	items, err := k.read("userinfo", k.test.UserInfo)
	if err != nil || len(items) != 1 {
		return cmp.Or(err, k.document.Errorf("userinfo", "got %d documents, want one", len(items)))
	}
	var given struct {
		UserInfo review.User `json:"userInfo"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(items[0].JSON, &given); err != nil {
		return k.document.Errorf("userinfo", "%v", err)
	}
	k.user = given.UserInfo
	return nil
}

// readContext reads the objects that policies may get from the cluster.
func (k *kyvernoRun) readContext() error {
	if k.test.Context == "" {
		return nil
	}
	items, err := k.read("context", k.test.Context)
	if err != nil || len(items) != 1 {
		return cmp.Or(err, k.document.Errorf("context", "got %d documents, want one", len(items)))
	}
	var given struct {
		Spec struct {
			Resources []json.RawMessage `json:"resources"`
		} `json:"spec"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(items[0].JSON, &given); err != nil {
		return k.document.Errorf("context", "%v", err)
	}
	for _, text := range given.Spec.Resources {
		k.state = append(k.state, manifest.Parse(items[0].File, text)...)
	}
	return nil
}

// check compares a result of the test for some resources, nil for all, with the verdicts of the policies.
func (k *kyvernoRun) check(ctx context.Context, r *Runner, row *kyvernoResult, path string, resources []string) (failures []string, err error) {
	if k.once.Do(func() { k.err = k.load() }); k.err != nil {
		return nil, k.err
	}
	name, err := k.checkRow(row, path)
	if err != nil {
		return nil, err
	}
	isClassic := slices.ContainsFunc(k.policies, func(p *translate.Policy) bool { return k.isOf(p, row, name) && k.isClassic(p) })
	for _, at := range k.selected(row, resources) {
		operation := k.operationOf(row)
		if isClassic && row.Operation == "" {
			operation = cmp.Or(k.operations[[2]string{name, k.objects[at].Metadata.Name}], operation)
		}
		e, err := k.evaluation(ctx, r, operation)
		if err != nil {
			return nil, err
		}
		failures = append(failures, e.compare(row, name, at)...)
	}
	return failures, nil
}

// checkRow returns the name of the policy of a row.
func (k *kyvernoRun) checkRow(row *kyvernoResult, path string) (name string, err error) {
	if !slices.Contains([]string{verdictPass, verdictFail, verdictSkip, verdictError, "warn"}, row.Result) {
		return "", k.document.Errorf(path+".result", "got %q, want pass, fail, skip, error or warn", row.Result)
	}
	_, name, isNamespaced := strings.Cut(row.Policy, "/")
	if !isNamespaced {
		name = row.Policy
	}
	if !slices.ContainsFunc(k.policies, func(p *translate.Policy) bool { return k.items[k.documents(p)].Metadata.Name == name }) {
		return "", k.document.Errorf(path+".policy", "got %q, which is not among the policies", row.Policy)
	}
	return name, nil
}

func (k *kyvernoRun) operationOf(row *kyvernoResult) codec.Operation {
	return cmp.Or(codec.Operation(row.Operation), k.operation, codec.Create)
}

// documents returns the index among the items of the document of a policy.
func (k *kyvernoRun) documents(p *translate.Policy) int { return k.foreign[p.Document] }

// named returns the indexes of the objects that a resource names, as name or namespace/name.
func (k *kyvernoRun) named(resource string) (all []int) {
	namespace, name, ok := strings.Cut(resource, "/")
	if !ok {
		return k.byName[resource]
	}
	for _, i := range k.byName[name] {
		if namespace == cmp.Or(k.objects[i].Metadata.Namespace, metav1.NamespaceDefault) {
			all = append(all, i)
		}
	}
	return all
}

// resolve finds the objects of the resourceSpecs of a row, and whether it names any object.
func (k *kyvernoRun) resolve(row *kyvernoResult) {
	for _, s := range row.ResourceSpecs {
		for _, i := range k.byName[s.Name] {
			item, version := &k.objects[i], strings.TrimPrefix(s.Group+"/"+s.Version, "/")
			if version == item.APIVersion && s.Namespace == item.Metadata.Namespace && len(row.Resources) > 0 {
				row.specified = append(row.specified, i)
			}
		}
	}
	row.names = len(row.specified) > 0 || slices.ContainsFunc(row.Resources, func(r string) bool { return len(k.named(r)) > 0 })
}

// selected returns the indexes of the objects that resources name; if no resource of a row
// names one, it returns all.
func (k *kyvernoRun) selected(row *kyvernoResult, resources []string) (all []int) {
	for _, resource := range resources {
		all = append(all, k.named(resource)...)
	}
	all = append(all, row.specified...)
	if !row.names {
		for i := range k.objects {
			all = append(all, i)
		}
	}
	return all
}
