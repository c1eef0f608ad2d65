package defaults

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	openapi "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

const (
	// refusalsMax is how many errors of an object are looked for, and refusalsShown how many are said.
	refusalsMax, refusalsShown = 100, 10
	// refusalMax is the length of one. It may have the value, and all values of an enum.
	refusalMax = 400

	// workMax bounds the validation of an object. A unit is about 10 nanoseconds. An object with 100,000 values in 1.5 MiB, which is
	// as much as etcd takes, needs a quarter of it. A small object has less: somebody may have many of them. What it needs beyond
	// workOfSize for each byte, at most workMin, is taken from workShared, which all objects have together: some ten seconds. Objects
	// of public repositories need nothing of it.
	workMax, workMin, workOfSize       = 400_000_000, 2_000_000, 500
	workShared                         = 1_000_000_000
	workOfNode, workOfEnum, workOfName = 1000, 100, 10
)

// errTooMuchWork is the error of an object that takes too long.
var errTooMuchWork = errors.New("it cannot be checked within seconds whether its CustomResourceDefinition allows it: " +
	"its lists and maps, and the enums and patterns of the schema, are too long")

// A Refusal says that kube-apiserver refuses an object.
type Refusal struct {
	Path    string // of the first field, "" if it is not known
	Message string
}

// Validate returns why kube-apiserver refuses a custom resource that its CustomResourceDefinition does not allow, nil if it
// does not. old is the object before an UPDATE, nil if there is none or it is unknown: faults of values that do not change do not count
// (CRDValidationRatcheting).
//
// The paths of the subresource scale are not read.
func (d *Defaults) Validate(gvk schema.GroupVersionKind, text, old []byte) *Refusal {
	if !d.Defines(gvk) {
		return nil
	}
	faults, err := d.faults(d.custom[gvk], text, old)
	switch {
	case err != nil:
		return &Refusal{Message: err.Error()}
	case len(faults) == 0:
		return nil
	}
	var messages []string
	for _, f := range faults[:min(len(faults), refusalsShown)] {
		messages = append(messages, f.message)
	}
	if more := len(faults) - refusalsShown; more > 0 {
		messages = append(messages, fmt.Sprintf("and %d more", more))
	}
	return &Refusal{faults[0].path, strings.Join(messages, "; ")}
}

// A fault is an error of a field.
type fault struct {
	path, message string
	node          string // the path of the value that is not allowed
	of            faultKind
	blocks        bool // CEL rules are not evaluated
}

// faults returns the first faults of an object.
func (d *Defaults) faults(k *customKind, text, oldText []byte) (faults []fault, err error) {
	custom, err := k.prepare(text)
	if custom == nil || err != nil {
		return nil, err
	}
	faults, err = d.schemaFaults(k, custom, len(text))
	var old object
	if err == nil && oldText != nil && (len(faults) > 0 || k.hasRules) {
		old, err = k.prepare(oldText)
	}
	if err == nil && old != nil && len(faults) > 0 {
		faults, err = d.ratchet(k, faults, custom, old, len(oldText))
	}
	switch {
	case err != nil || !k.hasRules:
		return faults, err
	case slices.ContainsFunc(faults, func(f fault) bool { return f.blocks }):
		return append(faults, fault{message: unchecked}), nil
	}
	broken, err := d.brokenRules(k, custom, old)
	return append(faults, broken...), err
}

// prepare returns an object as kube-apiserver validates it, nil if it cannot be read: what is wrong with it then is said where it is
// read.
func (k *customKind) prepare(text []byte) (custom object, err error) {
	if decode(text, &custom) != nil || custom == nil {
		return nil, nil
	}
	// kube-apiserver does this when it decodes an object, and drops the status when it creates one. The copy is not for plugins: they
	// see what is in the manifest, also if the definition is that of a stranger.
	new(pruner).prune(custom, k.root, k.root.preserve)
	k.root.dropNulls(custom)
	room := defaultBytesMax
	if k.root.set(custom, &room); room == full {
		return nil, errTooLarge
	}
	if k.status {
		delete(custom, "status")
	}
	return custom, nil
}

// schemaFaults returns the first faults that the schema finds in an object of that many bytes.
func (d *Defaults) schemaFaults(k *customKind, custom object, size int) ([]fault, error) {
	own := size * workOfSize
	room := min(own+int(min(workMin, max(0, d.workShared.Load()))), workMax)
	v := validator{patterns: &k.patterns, minor: d.release.Minor(), work: room, max: refusalsMax}
	v.validate(custom, k.root)
	if taken := room - max(v.work, 0) - own; taken > 0 {
		d.workShared.Add(-int64(taken))
	}
	return v.faults, v.err
}

// A validator validates one object. It walks through the object and its structure, and leaves each value to the validator of
// kube-apiserver (k8s.io/kube-openapi pkg/validation/validate), without what is inside of it. To walk with that one takes time for
// each property that the object does not have, and for each pair of errors.
type validator struct {
	*patterns

	minor  int
	work   int // that is left
	at     trail
	max    int // faults
	faults []fault
	err    error
}

// done reports whether nothing more is looked for.
func (v *validator) done() bool { return v.err != nil || len(v.faults) >= v.max }

// spend takes from the work that is left.
func (v *validator) spend(units int) bool {
	if v.work -= units; v.work < 0 && v.err == nil {
		v.err = errTooMuchWork
	}
	return !v.done()
}

// validate validates a value, and what is in it.
func (v *validator) validate(value any, s *structure) {
	if s == nil || !v.spend(workOfNode) {
		return
	}
	v.leaf(value, s)
	at := v.at
	defer func() { v.at = at }()
	switch value := value.(type) {
	case nil:
		return // kube-apiserver validates nothing else of it
	case object:
		v.object(value, s)
		for _, name := range slices.Sorted(maps.Keys(value)) {
			v.at = at.member(name)
			v.validate(value[name], s.of(name))
		}
	case []any:
		v.list(value, s)
		for i, inner := range value {
			if v.at = at.index(i); v.done() || s.items == nil {
				break
			}
			v.validate(inner, s.items)
		}
	}
	v.at = at
	v.junctors(value, s)
}

// leaf validates what a schema says of a value itself.
func (v *validator) leaf(value any, s *structure) {
	text, isText := value.(string)
	work := len(text)
	if enum, ok := s.props["enum"].([]any); ok {
		work += s.enumSize + len(enum)*(workOfEnum+sizeOf(value))
	}
	if !v.spend(work) {
		return
	}
	props := s.leaf(v.minor)
	if result := validate.NewSchemaValidator(props, nil, "", strfmt.Default).Validate(value); !result.IsValid() {
		if v.max == 1 {
			v.faults = append(v.faults, fault{})
			return
		}
		for _, err := range validate.NewSchemaValidator(props, nil, v.at.String(), strfmt.Default).Validate(value).Errors {
			v.refuse(v.at.String(), fieldError(v.at.String(), err))
		}
		return // that a text that is too long has another pattern too is not said
	}
	if pattern, ok := s.props["pattern"].(string); ok && pattern != "" && isText {
		compiled, steps, err := v.compile(pattern)
		switch {
		case err != nil:
			v.err = err
		case v.spend(len(text)*steps/8) && !compiled.MatchString(text):
			v.refuse(v.at.String(), fieldError(v.at.String(), openapi.FailedPattern(v.at.String(), "body", pattern, text)))
		}
	}
}

// object validates an object without its members.
func (v *validator) object(value object, s *structure) {
	required, _ := s.props["required"].([]any)
	v.spend(len(required)*workOfName + len(value)*workOfName)
	for _, name := range required {
		if name, ok := name.(string); ok && !v.done() {
			if _, has := value[name]; !has {
				v.refuse(v.at.String(), field.Required(field.NewPath(v.at.member(name).String()), ""))
			}
		}
	}
	if s.embedded {
		v.embedded(value)
	}
}

// junctors validates allOf, anyOf, oneOf and not.
func (v *validator) junctors(value any, s *structure) {
	for _, all := range s.allOf {
		v.validate(value, all)
	}
	refuse := func(format string, more ...any) {
		if at := v.at.String(); !v.done() {
			v.refuse(at, field.Invalid(pathOf(at), "", fmt.Sprintf(format, append([]any{at}, more...)...)))
		}
	}
	if len(s.anyOf) > 0 && !slices.ContainsFunc(s.anyOf, func(one *structure) bool { return v.allows(value, one) }) {
		refuse(validate.MustValidateAtLeastOneSchemaError)
	}
	valid := 0
	for _, one := range s.oneOf {
		if v.allows(value, one) {
			valid++
		}
	}
	switch {
	case len(s.oneOf) == 0, valid == 1:
	case valid == 0:
		refuse(validate.MustValidateOnlyOneSchemaError, "Found none valid")
	default:
		refuse(validate.MustValidateOnlyOneSchemaError, fmt.Sprintf("Found %d valid alternatives", valid))
	}
	if s.not != nil && v.allows(value, s.not) {
		refuse(validate.MustNotValidateSchemaError)
	}
}

// allows reports whether a value is valid, without its faults.
func (v *validator) allows(value any, s *structure) bool {
	inner := validator{patterns: v.patterns, minor: v.minor, work: v.work, max: 1, err: v.err}
	inner.validate(value, s)
	v.work, v.err = inner.work, inner.err
	return len(inner.faults) == 0
}

// refuse notes an error. at is the path of the value, which is that of the line in the file.
func (v *validator) refuse(at string, err *field.Error) { v.refuseAs(ofSchema, at, err) }

func (v *validator) refuseAs(of faultKind, at string, err *field.Error) {
	if v.done() {
		return
	}
	node := at
	if at == "" {
		at = err.Field // such as the missing field of the object
	}
	if v.max == 1 { // only whether there is a fault
		v.faults = append(v.faults, fault{})
		return
	}
	v.faults = append(v.faults, fault{at, shortened(err.Error()), node, of, slices.Contains(blocking, err.Type)})
}

// unchecked is what kube-apiserver says of rules that it does not evaluate.
const unchecked = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"

// blocking are the errors after which kube-apiserver evaluates no CEL rules (hasBlockingErr of its strategy for custom resources).
var blocking = []field.ErrorType{
	field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid,
}

func shortened(message string) string {
	if len(message) > refusalMax {
		return strings.ToValidUTF8(message[:refusalMax], "") + "..."
	}
	return message
}

// theObject stands for the path of the object itself.
const theObject = "the object"

// pathOf returns the path of an error. That of the object itself is empty, and Kubernetes would print it as <nil>.
func pathOf(at string) *field.Path {
	if at == "" {
		return field.NewPath(theObject)
	}
	return field.NewPath(at)
}

// fieldError is kubeOpenAPIResultToFieldErrors of k8s.io/apiextensions-apiserver pkg/apiserver/validation.
func fieldError(at string, err error) *field.Error {
	wrong, ok := errors.AsType[*openapi.Validation](err)
	if !ok {
		return field.Invalid(pathOf(at), "", err.Error())
	}
	number := func(value any) int {
		n, _ := value.(int64)
		return int(n)
	}
	value := wrong.Value
	if value == nil {
		value = ""
	}
	switch wrong.Code() {
	case openapi.EnumFailCode:
		var values []string
		for _, allowed := range wrong.Values[:min(len(wrong.Values), refusalMax)] {
			text, isText := allowed.(string)
			if !isText {
				j, _ := json.Marshal(allowed)
				text = string(j)
			}
			values = append(values, text)
		}
		return field.NotSupported(pathOf(at), wrong.Value, values)
	case openapi.TooLongFailCode:
		return field.TooLong(pathOf(at), "", number(wrong.Valid))
	case openapi.MaxItemsFailCode, openapi.TooManyPropertiesCode:
		return field.TooMany(pathOf(at), number(wrong.Value), number(wrong.Valid))
	case openapi.InvalidTypeCode:
		return field.TypeInvalid(pathOf(at), value, wrong.Error())
	}
	return field.Invalid(pathOf(at), value, wrong.Error())
}

// embedded is validateEmbeddedResource of k8s.io/apiextensions-apiserver pkg/apiserver/schema/objectmeta.
func (v *validator) embedded(value object) {
	v.spend(len(v.at) * workOfName)
	at := v.at.String()
	under := func(name string) *field.Path { return field.NewPath(at).Child(name) }
	for _, name := range [...]string{"apiVersion", "kind"} {
		given, has := value[name]
		text, isText := given.(string)
		switch {
		case !has:
			v.refuseAs(ofMetadata, at, field.Required(under(name), ""))
		case !isText:
			v.refuseAs(ofMetadata, at, field.Invalid(under(name), given, "must be a string"))
		case text == "":
			v.refuseAs(ofMetadata, at, field.Invalid(under(name), text, "must not be empty"))
		case name == "apiVersion":
			if _, err := schema.ParseGroupVersion(text); err != nil {
				v.refuseAs(ofMetadata, at, field.Invalid(under(name), text, err.Error()))
			}
		default:
			if errs := utilvalidation.IsDNS1035Label(strings.ToLower(text)); len(errs) > 0 {
				v.refuseAs(ofMetadata, at, field.Invalid(under(name), text, "may have mixed case, but should otherwise match: "+strings.Join(errs, ",")))
			}
		}
	}
	given, has := value["metadata"]
	if !has {
		return
	}
	v.spend(sizeOf(given))
	meta := new(metav1.ObjectMeta)
	text, err := json.Marshal(given)
	if err == nil {
		err = decode(text, meta)
	}
	if err != nil {
		v.refuseAs(ofMetadata, at, field.Invalid(under("metadata"), given, err.Error()))
		return
	}
	if meta.Name == "" {
		meta.Name = "fakename" // it need not have one
	}
	isName := func(name string, isPrefix bool) []string {
		if isPrefix {
			return content.IsPathSegmentPrefix(name)
		}
		return content.IsPathSegmentName(name)
	}
	for _, err := range validation.ValidateObjectMeta(meta, meta.Namespace != "", isName, under("metadata")) {
		v.refuseAs(ofMetadata, at, err)
	}
}

// list is ValidateListSetsAndMaps of k8s.io/apiextensions-apiserver pkg/apiserver/schema/listtype for one list.
func (v *validator) list(value []any, s *structure) {
	kind, _ := s.props["x-kubernetes-list-type"].(string)
	if kind != "set" && kind != "map" || !v.spend(sizeOf(value)+len(v.at)*workOfName) {
		return
	}
	at, keys := v.at.String(), value
	if kind == "map" {
		names, _ := s.props["x-kubernetes-list-map-keys"].([]any)
		keys = make([]any, len(value))
		for i, element := range value {
			members, isObject := element.(object)
			if !isObject && element != nil {
				path := fmt.Sprintf("%s[%d]", at, i)
				v.refuseAs(ofListType, path, field.Invalid(field.NewPath(path), element, "must be an object for an array of list-type map"))
				return
			}
			key := object{}
			for _, name := range names {
				if name, ok := name.(string); ok {
					if member, has := members[name]; has {
						key[name] = member
					}
				}
			}
			keys[i] = key
		}
	}
	seen := make(map[string]int, len(keys))
	for i, key := range keys {
		text, err := json.Marshal(key)
		if err != nil || !utf8.Valid(text) {
			continue
		}
		if seen[string(text)]++; seen[string(text)] == 2 { // it is said once
			path := fmt.Sprintf("%s[%d]", at, i)
			v.refuseAs(ofListType, path, field.Duplicate(field.NewPath(path), key))
		}
	}
}
