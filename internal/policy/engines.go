package policy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

const (
	// documentsMax is how many documents of other engines are translated. With them, kube-apiserver
	// would have three times as many policies as with any public library.
	documentsMax = 5000
	// documentsBytesMax is how long they may be together, in bytes. Compiled, they take some ten
	// times as much memory.
	documentsBytesMax = 8 << 20
	// namespaceDocumentsMax and namespaceDocumentBytesMax bound those of one namespace, whose users
	// share what all have: ten namespaces fill a tenth of it.
	namespaceDocumentsMax     = 50
	namespaceDocumentBytesMax = 128 << 10
)

// engines has the API groups of other engines, by the name of the engine. Their resources are
// those of package translate: policies, what changes policies, and what has no translation but
// decides about requests, which is reported.
var engines = map[string][]*cluster.Group{
	"kyverno": {
		cluster.DefineGroup("policies.kyverno.io", "validatingpolicies", "namespacedvalidatingpolicies", "mutatingpolicies",
			"namespacedmutatingpolicies", "policyexceptions", "imagevalidatingpolicies", "namespacedimagevalidatingpolicies",
			"generatingpolicies", "namespacedgeneratingpolicies", "deletingpolicies", "namespaceddeletingpolicies"),
		cluster.DefineGroup("kyverno.io", "clusterpolicies", "policies", "policyexceptions", "cleanuppolicies", "clustercleanuppolicies",
			"globalcontextentries"),
	},
	"gatekeeper": {
		cluster.DefineGroup("templates.gatekeeper.sh", "constrainttemplates"),
		cluster.DefineGroup("constraints.gatekeeper.sh", "*"),
		cluster.DefineGroup("mutations.gatekeeper.sh", "assign", "assignmetadata", "modifyset", "assignimage"),
		cluster.DefineGroup("expansion.gatekeeper.sh", "expansiontemplate"),
		cluster.DefineGroup("externaldata.gatekeeper.sh", "providers"),
	},
}

// engineNames are the names of engines, sorted.
var engineNames = slices.Sorted(maps.Keys(engines))

// needsOf returns the needs of a plugin that reads the policies of other engines.
func needsOf(read []string) (needs []cluster.Need) {
	for _, name := range read {
		for _, group := range engines[name] {
			needs = append(needs, group.Watched())
		}
	}
	if needs == nil {
		return nil
	}
	return append(needs, cluster.Events.Called("create").InBackground(), cluster.Discovered(), cluster.DiscoveredSchemas(), cluster.Dynamic())
}

// foreign has the policies of other engines in the cluster, translated. Only one goroutine at a
// time may call its methods, apart from report.
type foreign[P, B metav1.Object, E any] struct {
	kind       *Kind[P, B]
	groups     []*cluster.GroupObjects
	exceptions string // the namespace of exceptions that count, "*" for all
	params     *clusterParams
	readKinds  *readKinds
	compile    Compile[P, E]
	reports    *foreignReports

	digest   [sha256.Size]byte // of the documents
	ends     time.Time         // when the translation ends, zero for never
	policies []*foreignPolicy[E]
	problems []foreignProblem
	known    map[[sha256.Size]byte]*foreignPolicy[E] // by its content
}

// A foreignPolicy is a compiled translation with its bindings.
type foreignPolicy[E any] struct {
	policy    *Policy[E] // nil if it is unknown which requests it selects
	paramKind *schema.GroupVersionKind
	err       error // why it cannot be evaluated, apart from expressions that do not compile
	reads     []translate.Read
}

func newForeign[P, B metav1.Object, E any](kind *Kind[P, B], config *Config, view *cluster.View, compile Compile[P, E]) *foreign[P, B, E] {
	f := &foreign[P, B, E]{
		kind: kind, exceptions: config.ExceptionsNamespace, compile: compile,
		params: newClusterParams(cluster.DynamicIn(view)), reports: newForeignReports(kind.Name, view),
	}
	f.readKinds = &readKinds{params: f.params}
	for _, name := range config.Read {
		for _, group := range engines[name] {
			f.groups = append(f.groups, group.In(view))
		}
	}
	return f
}

// A foreignDocument is a document of another engine.
type foreignDocument struct {
	object *cluster.JSON
	text   []byte
	kind   schema.GroupVersionKind
}

// refresh translates and compiles the documents, if they changed, and returns the policies.
func (f *foreign[P, B, E]) refresh(ctx context.Context, now time.Time) Set[E] {
	documents, missing := f.documents()
	hash := sha256.New()
	for i := range documents {
		documents[i].write(hash)
	}
	digest := [sha256.Size]byte(hash.Sum(nil))
	if f.known == nil || digest != f.digest || !f.ends.IsZero() && !now.Before(f.ends) {
		f.digest = digest
		f.problems = f.translate(documents, now)
	}
	used := make(wantedKinds)
	var wanted []translate.Read
	for _, c := range f.policies {
		wanted = append(wanted, c.reads...)
	}
	readable := f.readKinds.find(ctx, wanted, used)
	var set Set[E]
	for _, c := range f.policies {
		own := *c.policy
		own.params = f.params
		if len(c.reads) > 0 {
			own.reads = readable.of(c.reads)
		}
		if c.paramKind != nil {
			used.add(*c.paramKind, own.bindings())
		}
		set = append(set, &own)
	}
	failed := f.params.use(ctx, used)
	f.reports.use(slices.Concat(missing, f.problems, readable.check(failed)))
	for i, p := range set {
		if kind := f.policies[i].paramKind; kind != nil && failed[*kind] != nil {
			p.err = errors.Join(p.err, failed[*kind])
		}
	}
	return set
}

// documents returns the documents that are translated, and why others are not.
func (f *foreign[P, B, E]) documents() (all []foreignDocument, missing []foreignProblem) {
	var found []foreignDocument
	for _, group := range f.groups {
		objects, errs := group.List()
		for _, err := range errs {
			missing = append(missing, foreignProblem{text: err.Error()})
		}
		for _, object := range objects {
			text, _ := object.MarshalJSON() // which returns no error
			kind := typeOf(text)
			if translate.IsForeign(kind) {
				found = append(found, foreignDocument{object, text, kind})
			}
		}
	}
	// Those that belong to no namespace come first: nobody's namespace takes their place.
	slices.SortStableFunc(found, func(a, b foreignDocument) int { return cmp.Compare(a.object.GetNamespace(), b.object.GetNamespace()) })
	type size struct{ count, bytes int }
	of, total := make(map[string]size), size{}
	for _, d := range found {
		namespace := d.object.GetNamespace()
		s := of[namespace]
		s.count, s.bytes = s.count+1, s.bytes+len(d.text)
		switch {
		case namespace != "" && (s.count > namespaceDocumentsMax || s.bytes > namespaceDocumentBytesMax):
			missing = append(missing, d.problem("a namespace may have %d documents with %d bytes", namespaceDocumentsMax, namespaceDocumentBytesMax))
			continue
		case total.count+1 > documentsMax || total.bytes+len(d.text) > documentsBytesMax:
			missing = append(missing, d.problem("a cluster may have %d documents with %d bytes", documentsMax, documentsBytesMax))
			continue
		case d.kind.Kind == "PolicyException" && f.exceptions != "*" && namespace != f.exceptions:
			missing = append(missing, d.problem("only exceptions in the namespace that exceptionsNamespace names count, because whoever may write one passes policies"))
			continue
		}
		of[namespace], total = s, size{total.count + 1, total.bytes + len(d.text)}
		all = append(all, d)
	}
	return all, missing
}

// write writes what the translation depends on. It is the same after an engine wrote its status.
func (d *foreignDocument) write(w io.Writer) {
	o := d.object
	fmt.Fprintf(w, "%q %q %q %q %d %q %q\n", d.kind, o.GetNamespace(), o.GetName(), o.GetUID(), o.GetGeneration(), o.GetLabels(), o.GetAnnotations())
	if o.GetUID() == "" || o.GetGeneration() == 0 {
		fmt.Fprintf(w, "%q\n", d.text)
	}
}

// problem returns a problem of a document that is not evaluated.
func (d *foreignDocument) problem(format string, args ...any) foreignProblem {
	return foreignProblem{document: d, text: "it is not evaluated: " + fmt.Sprintf(format, args...)}
}

// typeOf returns apiVersion and kind of a document, none if it cannot be read.
func typeOf(text []byte) schema.GroupVersionKind {
	var kind metav1.TypeMeta
	if kjson.UnmarshalCaseSensitivePreserveInts(text, &kind) != nil {
		return schema.GroupVersionKind{}
	}
	return schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
}

// translate translates all documents and compiles what changed. It returns what could not be.
func (f *foreign[P, B, E]) translate(documents []foreignDocument, now time.Time) (problems []foreignProblem) {
	texts := make([][]byte, len(documents))
	for i := range documents {
		texts[i] = documents[i].text
	}
	result := translate.Translate(texts, translate.Options{Now: now, Cluster: true, Functions: true, Reads: true})
	f.ends = result.Ends
	outcomes := make([]outcome, len(documents))
	known := make(map[[sha256.Size]byte]*foreignPolicy[E])
	f.policies = nil
	for _, p := range result.Policies {
		if (p.Mutating != nil) != (f.kind.Name == mutatingKind) || len(p.ValidatingBindings)+len(p.MutatingBindings) == 0 {
			continue
		}
		c, err := f.compiled(p, known)
		of := &outcomes[p.Document]
		if err != nil && p.Fault == "" {
			of.errs = append(of.errs, err.Error())
		}
		switch {
		case c.policy == nil:
			continue
		case err == nil:
			of.evaluated++
		case p.Ignores:
			of.ignored++
		default:
			of.failing++
		}
		f.policies = append(f.policies, c)
	}
	f.known = known
	for _, problem := range result.Problems {
		if !problem.IsNote {
			outcomes[problem.Document].errs = append(outcomes[problem.Document].errs, problem.Error())
		}
	}
	for i := range outcomes {
		if o := &outcomes[i]; len(o.errs) > 0 && f.isOurs(documents[i].kind) {
			problems = append(problems, foreignProblem{document: &documents[i], text: o.String()})
		}
	}
	slices.SortStableFunc(f.policies, func(a, b *foreignPolicy[E]) int { return strings.Compare(a.policy.Name, b.policy.Name) })
	return problems
}

// isOurs reports whether this plugin reports problems of documents of a kind: both read them all.
func (f *foreign[P, B, E]) isOurs(kind schema.GroupVersionKind) bool {
	return strings.Contains(kind.Kind, "Mutating") == (f.kind.Name == mutatingKind)
}

// An outcome is what became of a document with errors.
type outcome struct {
	errs                        []string
	evaluated, ignored, failing int // policies
}

// problemsShown is how many errors of a document are shown.
const problemsShown = 3

func (o *outcome) String() string {
	text := strings.Join(o.errs[:min(len(o.errs), problemsShown)], "; ")
	if more := len(o.errs) - problemsShown; more > 0 {
		text += fmt.Sprintf("; and %d more errors", more)
	}
	switch {
	case o.failing > 0:
		return "it cannot be evaluated, so requests that it selects are denied, as its failure policy asks: " + text
	case o.evaluated > 0:
		return "a part of it is not evaluated: " + text
	}
	return "it is not evaluated: " + text
}

// compiled returns the compiled policy of a translation, and why it cannot be evaluated. The
// policy is nil if it is unknown which requests it selects.
func (f *foreign[P, B, E]) compiled(p *translate.Policy, known map[[sha256.Size]byte]*foreignPolicy[E]) (*foreignPolicy[E], error) {
	texts, err := p.Objects()
	if err != nil {
		return new(foreignPolicy[E]), err
	}
	key := sha256.Sum256(slices.Concat(append(texts, fmt.Appendf(nil, "%s %v %v", p.Fault, p.Ignores, p.Functions))...))
	c := f.known[key]
	if c == nil {
		c = f.compileForeign(p)
	}
	known[key] = c
	if c.policy == nil {
		return c, c.err
	}
	return c, errors.Join(c.policy.err, c.policy.compileErr)
}

func (f *foreign[P, B, E]) compileForeign(p *translate.Policy) *foreignPolicy[E] {
	var document P
	var bindings []*Binding
	bind := func(object metav1.Object) {
		b, err := newBinding(object)
		if checked := f.kind.checkBinding(object.(B)).ToAggregate(); checked != nil {
			err = checked
		}
		b.err = err
		bindings = append(bindings, b)
	}
	if p.Mutating != nil {
		document = any(p.Mutating).(P)
		for _, b := range p.MutatingBindings {
			bind(b)
		}
	} else {
		document = any(p.Validating).(P)
		for _, b := range p.ValidatingBindings {
			bind(b)
		}
	}
	slices.SortFunc(bindings, func(a, b *Binding) int { return strings.Compare(a.Name, b.Name) })
	var fault error
	if p.Fault != "" {
		fault = errors.New(p.Fault)
	}
	c := &foreignPolicy[E]{reads: p.Reads}
	compile := func(document P) (E, error) { return f.compile(document, p.Functions) }
	if c.policy, c.paramKind, c.err = compileChecked(f.kind, document, fault, compile); c.policy != nil {
		c.policy.bound, c.policy.err = newBoundBy(bindings), c.err
		c.policy.Ignores = c.err != nil && p.Ignores
	}
	return c
}
