package suite

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/policies"
	"github.com/fastadmit/fastadmit/internal/offline/review"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// The fields of a test that are read, and those on which no result depends.
var (
	kyvernoRead    = strings.Fields("apiVersion kind metadata policies resources exceptions paramResources variables values userinfo context results")
	kyvernoRowRead = strings.Fields("policy rule resources resourceSpecs result operation patchedResource patchedResources failOnMissingResources")
	kyvernoUnread  = strings.Fields("kind isValidatingPolicy isValidatingAdmissionPolicy isMutatingPolicy isMutatingAdmissionPolicy isDeletingPolicy " +
		"isGeneratingPolicy isImageValidatingPolicy")
)

// A kyvernoConversion makes a suite of a test of Kyverno.
type kyvernoConversion struct {
	*kyvernoRun
	to   *conversion
	ours []*translate.Policy // as a suite reads the documents: those of policies, in their order
	kept []policyFile        // what the test names as policies and exceptions
	// patched are the keys of the objects in files with patchedResources, by the names of these.
	patched map[string]map[string]bool
	unknown map[int]string // why a suite cannot have an object, by its index
}

// A policyFile is a file or folder that a test names.
type policyFile struct {
	name                 string
	validating, mutating bool // it has policies that do so
}

func (c *conversion) kyverno() error {
	run, err := c.kyvernoRun()
	if err != nil {
		return err
	}
	if c.checkKyverno(run); len(c.errs) > 0 {
		return errNothing
	}
	c.checkRows()
	if err := run.load(); err != nil {
		return err
	}
	k, before := &kyvernoConversion{kyvernoRun: run, to: c, patched: make(map[string]map[string]bool)}, len(c.errs)
	if err := k.translate(); err != nil {
		return err
	}
	if run.test.Metadata.Name != "" {
		set(c.suite, "name", run.test.Metadata.Name)
	}
	separate, err := k.files()
	if err != nil {
		return err
	}
	if k.settings(separate); len(c.errs) > before {
		return errNothing
	}
	run.eachCase(func(name string, row *kyvernoResult, path string, resources []string) {
		if members := k.row(row, path, resources, separate); members != nil {
			c.addCase(name, members)
		}
	})
	return nil
}

// checkRows refuses what rows say and a suite cannot.
func (c *conversion) checkRows() {
	for i, text := range elements(c.text, "results") {
		path, before := index("results", i), len(c.errs)
		c.members(path, text, kyvernoRowRead, kyvernoUnread)
		c.faulty[path] = len(c.errs) > before
	}
}

// checkKyverno refuses what the test says and a suite cannot, apart from its rows.
func (c *conversion) checkKyverno(run *kyvernoRun) {
	c.members("", c.text, kyvernoRead, nil)
	c.members("metadata", member(c.text, "metadata"), []string{"name"}, []string{"labels", "annotations", "namespace"})
	c.checkValues("values", member(c.text, "values"))
	for _, file := range []struct{ path, name string }{
		{"variables", run.test.Variables}, {"userinfo", run.test.UserInfo}, {"context", run.test.Context},
	} {
		if file.name == "" {
			continue
		}
		items, err := c.read(file.path, file.name)
		if err != nil || len(items) != 1 {
			continue // load reports it
		}
		switch head := []string{"apiVersion", "kind", "metadata"}; file.path {
		case "variables":
			c.checkValues(file.path, items[0].JSON)
		case "userinfo":
			c.members(file.path, items[0].JSON, append(head, "userInfo"), []string{"roles", "clusterRoles"})
		case "context":
			c.members(file.path, items[0].JSON, append(head, "spec"), nil)
			c.members(file.path+".spec", member(items[0].JSON, "spec"), []string{"resources"}, nil)
		}
	}
}

func (c *conversion) checkValues(path string, text json.RawMessage) {
	if text == nil {
		return
	}
	c.members(path, text, strings.Fields("apiVersion kind metadata namespaceSelector namespaces globalValues"), nil)
	c.members(path+".globalValues", member(text, "globalValues"), []string{requestOperation}, nil)
}

// translate translates the policies as a suite does.
func (k *kyvernoConversion) translate() error {
	for i := range k.items {
		item := &k.items[i]
		var exception struct {
			Spec struct {
				ExpiresAt string `json:"expiresAt"`
			} `json:"spec"`
		}
		if item.Kind == "PolicyException" && kjson.UnmarshalCaseSensitivePreserveInts(item.JSON, &exception) == nil && exception.Spec.ExpiresAt != "" {
			return k.document.Errorf("exceptions", "%s: spec.expiresAt: got %q; Kyverno's tests do not read it, but a suite does; name a copy "+
				"without it", item.Source, exception.Spec.ExpiresAt)
		}
	}
	ours := policies.Translate(k.items, translate.Options{Now: time.Now(), Functions: true, Reads: true})
	if len(ours.Policies) != len(k.policies) {
		return k.document.Errorf("policies", "a suite reads %d policies in these files, this test %d", len(ours.Policies), len(k.policies))
	}
	k.ours = ours.Policies
	for i, p := range k.ours {
		if !isBound(p) && paramRef(k.policies[i]) != nil {
			return k.document.Errorf("policies", "%s: spec.evaluation.admission.enabled is false, and the policy needs a parameter: name a copy "+
				"without this field", k.items[k.documents(p)].Source)
		}
	}
	return nil
}

func isBound(p *translate.Policy) bool { return len(p.ValidatingBindings)+len(p.MutatingBindings) > 0 }

// files notes what the files with policies have. separate is true if some rows compare objects: a policy that denies them
// leaves none to compare, so the files with validating policies are those of the other cases only.
func (k *kyvernoConversion) files() (separate bool, err error) {
	at := 0
	for _, name := range slices.Concat(k.test.Policies, k.test.Exceptions) {
		items, err := k.read("policies", name)
		if err != nil {
			return false, err
		}
		file := policyFile{name: k.to.given(name)}
		for _, p := range k.ours {
			if document := k.documents(p); document >= at && document < at+len(items) {
				file.validating, file.mutating = file.validating || p.Validating != nil, file.mutating || p.Mutating != nil
			}
		}
		at += len(items)
		k.kept = append(k.kept, file)
	}
	separate = slices.ContainsFunc(k.test.Results, func(row kyvernoResult) bool { return row.patched() != "" }) &&
		slices.ContainsFunc(k.kept, func(file policyFile) bool { return file.validating })
	for _, file := range k.kept {
		if separate && file.validating && file.mutating {
			return false, k.document.Errorf("policies", "%s has validating and mutating policies, and results have patchedResources: put the "+
				"validating ones into a file of their own", file.name)
		}
	}
	return separate, nil
}

// policyFiles returns the names of files.
func (k *kyvernoConversion) policyFiles(keep func(*policyFile) bool) (names []string) {
	for i := range k.kept {
		if file := &k.kept[i]; keep(file) && !slices.Contains(names, file.name) {
			names = append(names, file.name)
		}
	}
	return names
}

// settings adds what all cases have in common.
func (k *kyvernoConversion) settings(separate bool) {
	c := k.to
	if names := k.policyFiles(func(file *policyFile) bool { return !separate || !file.validating }); len(names) > 0 {
		set(c.suite, "policies", names)
	}
	if slices.ContainsFunc(k.ours, func(p *translate.Policy) bool { return !isBound(p) }) {
		set(c.suite, "bindPolicies", string(admissionregistrationv1.Deny))
	}
	cluster := &yaml.Node{Kind: yaml.SequenceNode}
	for _, name := range k.test.ParamResources {
		path := new(yaml.Node)
		path.SetString(k.to.given(name))
		path.Style |= yaml.DoubleQuotedStyle // it may be off or yes
		cluster.Content = append(cluster.Content, path)
	}
	definitions, faults := c.definitions("resources", discovery.NewTable(nil), k.objects)
	cluster.Content, k.unknown = append(cluster.Content, definitions...), faults
	for i := k.params; i < len(k.state); i++ {
		cluster.Content = append(cluster.Content, c.object("values", &k.state[i]))
	}
	for i := range k.objects { // which policies see whatever object is reviewed
		if k.isSeen(&k.objects[i]) {
			cluster.Content = append(cluster.Content, c.object("resources", &k.objects[i]))
		}
	}
	if len(cluster.Content) > 0 {
		set(c.suite, "cluster", cluster)
	}
	request(c.suite, "", &k.user)
	set(c.suite, "defaults", false)
}

// isSeen reports whether policies see an object in the cluster: a Namespace, or a parameter.
func (k *kyvernoConversion) isSeen(item *manifest.Item) bool {
	if item.APIVersion == "v1" && item.Kind == "Namespace" {
		return true
	}
	return slices.ContainsFunc(k.policies, func(p *translate.Policy) bool {
		var kind *admissionregistrationv1.ParamKind
		if p.Validating != nil {
			kind = p.Validating.Spec.ParamKind
		} else {
			kind = p.Mutating.Spec.ParamKind
		}
		return kind != nil && kind.APIVersion == item.APIVersion && kind.Kind == item.Kind
	})
}

// row returns the case of a result for resources, nil if a suite cannot say it.
func (k *kyvernoConversion) row(row *kyvernoResult, path string, resources []string, separate bool) *yaml.Node {
	c := k.to
	if c.faulty[path] || c.bytes > files.BytesMax {
		return nil
	}
	policy, err := k.checkRow(row, path)
	if err != nil {
		c.errs = append(c.errs, err)
		return nil
	}
	operation := k.operationOf(row)
	selected := k.selected(row, resources)
	names, wanted, problem := k.wanted(row, policy)
	switch {
	case !isOperation(operation):
		c.refuse(path+".operation", "got %q, want CREATE, UPDATE or DELETE", operation)
		return nil
	case len(selected) == 0:
		c.refuse(path+".resources", "there is no object, so the result passes without a review; name resources")
		return nil
	case problem != "":
		c.refuse(path+".result", "%s", problem)
		return nil
	}
	for _, at := range selected {
		if fault := k.unknown[at]; fault != "" {
			c.refuse(path+".resources", "%s", fault)
			return nil
		}
	}
	members, expect := mapping(), mapping()
	whole, ok := k.whole(row, path, selected)
	if !ok {
		return nil
	}
	if separate && whole == "" {
		set(members, "policies", k.policyFiles(func(file *policyFile) bool { return file.validating }))
	}
	set(members, "object", k.objectsOf(path, selected))
	request(members, operation, new(review.User))
	for _, name := range names {
		c.bytes += len(name)
	}
	set(expect, "policies", []any{map[string]any{"names": names, "outcomes": wanted}})
	if whole != "" {
		set(expect, "wholeObject", whole)
	}
	set(members, "expect", expect)
	return members
}

// wanted returns the names of the policies of a row, and their outcomes. problem says why there are none.
func (k *kyvernoConversion) wanted(row *kyvernoResult, policy string) (names, wanted []string, problem string) {
	add := func(all ...admission.Outcome) {
		for _, outcome := range all {
			if !slices.Contains(wanted, outcome.String()) {
				wanted = append(wanted, outcome.String())
			}
		}
	}
	isSure := false
	for i, p := range k.policies {
		if !k.isOf(p, row, policy) {
			continue
		}
		isClassic := k.isClassic(p)
		isSure = isSure || isClassic || !dropsEmpty(p)
		name := nameOf(p)
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		switch row.Result {
		case verdictPass:
			add(admission.OutcomeAllowed)
		case verdictError:
			if !isClassic { // which calls it a failure
				add(admission.OutcomeErrored)
			}
		case verdictFail, "warn":
			if p.Validating != nil {
				add(failing(k.ours[i])...)
			}
			if isClassic {
				add(admission.OutcomeErrored)
			}
		}
	}
	if row.Result == verdictSkip {
		wanted = append(wanted, outcomeSkipped)
	}
	switch {
	case slices.Contains(names, ""):
		return nil, nil, "the policy has no name in its translation, so no result is found; give it one with letters"
	case len(names) == 0:
		return nil, nil, "the policy has no rule " + row.Rule + ", so the result cannot be met; name one that it has"
	case len(wanted) == 0:
		return nil, nil, "got " + row.Result + ", which a policy of this kind never has; write what it has"
	case isSure:
		wanted = append(wanted, outcomeUnmatched)
	}
	return names, wanted, ""
}

func nameOf(p *translate.Policy) string {
	if p.Validating != nil {
		return p.Validating.Name
	}
	return p.Mutating.Name
}

// failing returns the outcomes of a policy one of whose validations is false: that of each binding.
func failing(p *translate.Policy) (all []admission.Outcome) {
	if !isBound(p) {
		return []admission.Outcome{admission.OutcomeDenied} // of bindPolicies
	}
	for _, b := range p.ValidatingBindings {
		switch actions := b.Spec.ValidationActions; {
		case slices.Contains(actions, admissionregistrationv1.Deny):
			all = append(all, admission.OutcomeDenied)
		case slices.Contains(actions, admissionregistrationv1.Warn):
			all = append(all, admission.OutcomeWarned)
		default:
			all = append(all, admission.OutcomeAudited)
		}
	}
	return all
}

// whole returns the file with the stored objects of a row, "" if nothing is compared with it. ok is
// false if a suite cannot say it.
func (k *kyvernoConversion) whole(row *kyvernoResult, path string, selected []int) (file string, ok bool) {
	if row.patched() == "" || row.Result != verdictPass {
		return "", true
	}
	keys := k.patched[row.patched()]
	if keys == nil {
		items, err := k.read(path, row.patched())
		if err != nil {
			k.to.errs = append(k.to.errs, err)
			return "", false
		}
		keys = make(map[string]bool)
		for i := range items {
			keys[keyOf(&items[i])] = true
		}
		k.patched[row.patched()] = keys
	}
	missing := 0
	for _, at := range selected {
		if !keys[keyOf(&k.objects[at])] {
			missing++
		}
	}
	if missing > 0 {
		k.to.refuse(path+".resources", "%d of these objects are not in %s, so Kyverno compares nothing; add them there, or leave them out",
			missing, row.patched())
		return "", false
	}
	return k.to.given(row.patched()), true
}

// objectsOf returns the objects at some indexes: their file if it has no others, otherwise copies.
func (k *kyvernoConversion) objectsOf(path string, selected []int) any {
	first := &k.objects[selected[0]]
	isFile := k.inFile[first.File] == len(selected)
	for _, at := range selected {
		isFile = isFile && k.objects[at].File == first.File
	}
	if isFile {
		if name, err := filepath.Rel(filepath.Dir(k.file), first.File); err == nil {
			return name
		}
	}
	if len(selected) == 1 {
		return k.to.object(path, first)
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, at := range selected {
		list.Content = append(list.Content, k.to.object(path, &k.objects[at]))
	}
	return mapping("apiVersion", "v1", "kind", "List", "items", list)
}
