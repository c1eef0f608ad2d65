// Package discovery maps kinds to API resources without an API server. It has a table of
// the built-in kinds. CustomResourceDefinitions and the discovery of a cluster can extend
// the table.
package discovery

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/alike"
)

// builtIn has a line for each resource of kube-apiserver with every API and
// feature switched on: group version, kind, resource and scope.
// TestBuiltIn in e2e/review writes it.
//
//go:embed resources.txt
var builtIn string

// older has a line for each resource that only releases of Kubernetes before the newest serve, of those that can be
// emulated: group version and resource (k8s.io/kubernetes api/openapi-spec/v3). TestOlder in e2e/review compares it.
//
//go:embed older.txt
var older string

// customs has a line for each custom kind that many clusters have: group, kind, resource and scope.
//
//go:embed custom.txt
var customs string

// Resource is the API resource of a kind.
type Resource struct {
	schema.GroupVersionResource
	Namespaced bool // its objects are in namespaces
}

func (r Resource) String() string {
	scope := "cluster-scoped"
	if r.Namespaced {
		scope = "namespaced"
	}
	return scope + " resource " + r.GroupResource().String()
}

// Table maps kinds to resources. Several goroutines may use it at the same time.
type Table struct {
	// ask returns the resources of a group version from a cluster, nil for none.
	ask func(version schema.GroupVersion) (*metav1.APIResourceList, error)

	mu    sync.Mutex
	known map[schema.GroupVersionKind]Resource
	// customs are the resources of custom kinds in any version, without their version.
	customs map[schema.GroupKind]Resource
	asked   map[schema.GroupVersion]bool
}

// NewTable returns a table with the built-in kinds of Kubernetes. For other kinds, Find
// calls ask, once for each group version. ask returns the resources that a cluster serves,
// nil if it does not serve the group version. ask may be nil: then Find also knows the custom kinds that
// many clusters have, such as ServiceMonitor, without their CustomResourceDefinition.
func NewTable(ask func(version schema.GroupVersion) (*metav1.APIResourceList, error)) *Table {
	t := &Table{ask: ask, known: make(map[schema.GroupVersionKind]Resource), asked: make(map[schema.GroupVersion]bool)}
	for line := range strings.Lines(builtIn) {
		fields := strings.Fields(line)
		gvk := schema.FromAPIVersionAndKind(fields[0], fields[1])
		t.known[gvk] = Resource{gvk.GroupVersion().WithResource(fields[2]), fields[3] == "Namespaced"}
	}
	if ask != nil {
		return t
	}
	t.customs = make(map[schema.GroupKind]Resource)
	for line := range strings.Lines(customs) {
		fields := strings.Fields(line)
		resource := schema.GroupVersionResource{Group: fields[0], Resource: fields[2]}
		t.customs[schema.GroupKind{Group: fields[0], Kind: fields[1]}] = Resource{resource, fields[3] == "Namespaced"}
	}
	return t
}

// BuiltIn returns the resources of Kubernetes' own groups, without those of custom kinds.
func BuiltIn() map[string][]string {
	all := make(map[string][]string)
	for line := range strings.Lines(builtIn) {
		fields := strings.Fields(line)
		group := schema.FromAPIVersionAndKind(fields[0], fields[1]).Group
		if !slices.Contains(all[group], fields[2]) {
			all[group] = append(all[group], fields[2])
		}
	}
	return all
}

// served are the resources with their versions of all releases that can be emulated, by group.
var served = sync.OnceValue(func() map[string]map[schema.GroupVersionResource]bool {
	all := make(map[string]map[schema.GroupVersionResource]bool)
	add := func(version, resource string) {
		gv, _ := schema.ParseGroupVersion(version) // the tables have no wrong ones
		if all[gv.Group] == nil {
			all[gv.Group] = make(map[schema.GroupVersionResource]bool)
		}
		all[gv.Group][gv.WithResource(resource)] = true
	}
	for line := range strings.Lines(builtIn) {
		fields := strings.Fields(line)
		add(fields[0], fields[2])
	}
	for line := range strings.Lines(older) {
		fields := strings.Fields(line)
		add(fields[0], fields[1])
	}
	return all
})

// CanServe reports whether a release of Kubernetes that can be emulated serves a resource in a version, with every API
// and feature switched on. It is true for groups that are not Kubernetes' own.
func CanServe(resource schema.GroupVersionResource) bool {
	group, ok := served()[resource.Group]
	return !ok || group[resource]
}

// Add adds the resource of a kind, unless the table has one already.
func (t *Table) Add(kind string, resource Resource) {
	t.mu.Lock()
	defer t.mu.Unlock()
	gvk := resource.GroupVersion().WithKind(kind)
	if _, ok := t.known[gvk]; !ok {
		t.known[gvk] = resource
	}
}

// crd is the part of a CustomResourceDefinition that names its resources.
type crd struct {
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Kind   string `json:"kind"`
			Plural string `json:"plural"`
		} `json:"names"`
		Version  string `json:"version"` // of apiextensions.k8s.io/v1beta1
		Versions []struct {
			Name   string `json:"name"`
			Served *bool  `json:"served"`
		} `json:"versions"`
	} `json:"spec"`
	Status json.RawMessage `json:"status"`
}

// IsCRD reports whether objects of a kind are CustomResourceDefinitions.
func IsCRD(t schema.GroupVersionKind) bool {
	return t.Group == "apiextensions.k8s.io" && t.Kind == "CustomResourceDefinition"
}

// AddCRD adds the resources of all served versions of a CustomResourceDefinition in JSON.
// As for kube-apiserver, the group must have a dot. A kind that is another resource already is
// an error: the definition of a stranger cannot make it something that no plugin selects. What
// has a status and no group, as tests of Kyverno compare with a definition, defines nothing.
func (t *Table) AddCRD(definition []byte) error {
	var c crd
	if err := kjson.UnmarshalCaseSensitivePreserveInts(definition, &c); err != nil {
		return fmt.Errorf("cannot read the CustomResourceDefinition: %w", err)
	}
	if c.Spec.Group == "" && c.Status != nil {
		return nil
	}
	if !strings.Contains(c.Spec.Group, ".") {
		return fmt.Errorf("CustomResourceDefinition: spec.group: got %q, want a domain with at least one dot", c.Spec.Group)
	}
	versions := []string{}
	if c.Spec.Version != "" {
		versions = append(versions, c.Spec.Version)
	}
	for _, version := range c.Spec.Versions {
		if version.Served == nil || *version.Served {
			versions = append(versions, version.Name)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, version := range versions {
		gv := schema.GroupVersion{Group: c.Spec.Group, Version: version}
		if err := t.askFor(gv); err != nil {
			return err
		}
		resource := Resource{gv.WithResource(c.Spec.Names.Plural), c.Spec.Scope != "Cluster"}
		gvk := gv.WithKind(c.Spec.Names.Kind)
		if known, ok := t.known[gvk]; ok && known != resource {
			return fmt.Errorf("CustomResourceDefinition: got the %s for %s, which is the %s already", resource, gvk, known)
		}
		t.known[gvk] = resource
	}
	return nil
}

// UnknownError means that the resource of a kind is unknown.
type UnknownError struct {
	schema.GroupVersionKind
	Served []string // other group versions that have a kind of this name
	hint   string   // names the kind of the group version, or the group of the kind, that may be meant; "" for none
}

// IsMisspelt reports whether the group version has a kind of a similar name, or a well-known group of a similar name has the kind.
func (e *UnknownError) IsMisspelt() bool { return len(e.Served) == 0 && e.hint != "" }

// MayBeCustom reports whether a cluster may have the kind by a CustomResourceDefinition: it is not misspelt, and its group is none of
// Kubernetes' own. kube-apiserver wants a dot in the groups of definitions.
func (e *UnknownError) MayBeCustom() bool {
	return e.hint == "" && strings.Contains(e.Group, ".") && served()[e.Group] == nil
}

func (e *UnknownError) Error() string {
	text := fmt.Sprintf("unknown kind %q of apiVersion %q", e.Kind, e.GroupVersion())
	if len(e.Served) > 0 {
		return text + fmt.Sprintf("; it is known in %s", strings.Join(e.Served, ", "))
	}
	if e.hint != "" {
		return text + e.hint
	}
	return text + "; give its CustomResourceDefinition too, or name a cluster that has it with --kubeconfig"
}

// Find returns the resource of a kind. The error is an *UnknownError if there is none, or
// says that the cluster could not be asked.
func (t *Table) Find(gvk schema.GroupVersionKind) (Resource, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found, ok := t.known[gvk]; ok {
		return found, nil
	}
	if err := t.askFor(gvk.GroupVersion()); err != nil {
		return Resource{}, err
	}
	if found, ok := t.known[gvk]; ok {
		return found, nil
	}
	if found, ok := t.customs[gvk.GroupKind()]; ok {
		found.Version = gvk.Version
		return found, nil
	}
	if t.customs != nil && gvk.Group == "constraints.gatekeeper.sh" { // Gatekeeper makes their definitions of ConstraintTemplates
		return Resource{gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind)), false}, nil
	}
	unknown := &UnknownError{GroupVersionKind: gvk}
	var kinds, groups []string
	for other := range t.customs {
		if other.Kind == gvk.Kind {
			groups = append(groups, other.Group)
		}
	}
	for other := range maps.Keys(t.known) {
		if other.Kind == gvk.Kind && other.Group != gvk.Group && served()[other.Group] != nil {
			groups = append(groups, other.Group)
		}
		if other.Kind == gvk.Kind && (other.Group == gvk.Group || isKubernetes(gvk.Group)) {
			unknown.Served = append(unknown.Served, other.GroupVersion().String())
		}
		if other.GroupVersion() == gvk.GroupVersion() {
			kinds = append(kinds, other.Kind)
		}
	}
	slices.Sort(unknown.Served)
	slices.Sort(kinds)
	if unknown.hint = alike.Hint(gvk.Kind, kinds); unknown.hint == "" && strings.Contains(gvk.Group, ".") {
		slices.Sort(groups)
		unknown.hint = alike.Hint(gvk.Group, slices.Compact(groups))
	}
	return Resource{}, unknown
}

// isKubernetes says whether a group is one of Kubernetes: kinds moved from one to
// another, as Deployment did from extensions to apps.
func isKubernetes(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// askFor asks the cluster for the resources of a group version, once.
func (t *Table) askFor(version schema.GroupVersion) error {
	if t.ask == nil || t.asked[version] {
		return nil
	}
	list, err := t.ask(version)
	if err != nil {
		return fmt.Errorf("cannot ask the cluster for the resources of %q: %w", version, err)
	}
	t.asked[version] = true
	if list == nil {
		return nil
	}
	for _, resource := range list.APIResources {
		if !strings.Contains(resource.Name, "/") {
			t.known[version.WithKind(resource.Kind)] = Resource{version.WithResource(resource.Name), resource.Namespaced}
		}
	}
	return nil
}

// Plural returns the resource of a kind in any version of its group, "" if there is none. The
// group "*" stands for all.
func (t *Table) Plural(group, kind string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for known, resource := range t.known {
		if known.Kind == kind && (group == "*" || known.Group == group) && !slices.Contains(all, resource.Resource) {
			all = append(all, resource.Resource)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return slices.Min(all)
}

// Groups returns the groups that have a kind, sorted.
func (t *Table) Groups(kind string) (groups []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for known := range t.known {
		if known.Kind == kind && !slices.Contains(groups, known.Group) {
			groups = append(groups, known.Group)
		}
	}
	slices.Sort(groups)
	return groups
}

// Resources returns the resources of a group version as a cluster serves them, without their singular names; nil if the
// table has none. It does not ask a cluster.
func (t *Table) Resources(version schema.GroupVersion) *metav1.APIResourceList {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list *metav1.APIResourceList
	for known, resource := range t.known {
		if known.GroupVersion() == version {
			if list == nil {
				list = &metav1.APIResourceList{GroupVersion: version.String()}
			}
			list.APIResources = append(list.APIResources,
				metav1.APIResource{Name: resource.Resource, Kind: known.Kind, Namespaced: resource.Namespaced})
		}
	}
	return list
}

// Versions returns the group versions that have resources, without duplicates and in no order.
func (t *Table) Versions() []schema.GroupVersion {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[schema.GroupVersion]bool)
	for known := range t.known {
		all[known.GroupVersion()] = true
	}
	return slices.Collect(maps.Keys(all))
}

// KindOf returns the kind of a resource, "" if the table does not have it.
func (t *Table) KindOf(resource schema.GroupVersionResource) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for known, found := range t.known {
		if found.GroupVersionResource == resource {
			return known.Kind
		}
	}
	return ""
}
