package defaults

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// object is an object or a part of one.
type object = map[string]any

// A rule sets the default of a field.
type rule struct {
	// at is the path of the objects that have the field, "" for the whole object. "[]" stands for each
	// element of a list, as in "spec.ports[]". Where there is no such object, there is no default.
	at   string
	edit func(in object)
	// when are the conditions. All must be met.
	when []condition
}

// A condition depends on the object with the field, and on the minor release of Kubernetes.
type condition func(in object, minor int) bool

// set returns the rule that a field has a value unless it is set.
func set(at, field string, value any, when ...condition) rule {
	return compute(at, field, func(object) any { return copied(value) }, when...)
}

// copied returns a copy of a value that rules share.
func copied(value any) any {
	if n, ok := value.(int); ok {
		return int64(n)
	}
	return runtime.DeepCopyJSONValue(value)
}

// compute returns the rule that a field has the value that a function makes of its object, unless it
// is set. The function may return nil for no value.
func compute(at, field string, value func(in object) any, when ...condition) rule {
	return edit(at, func(in object) {
		if in[field] != nil {
			return
		}
		if v := value(in); v != nil {
			in[field] = v
		}
	}, when...)
}

// fill is set for a field that is encoded also if it is empty or 0.
func fill(at, field string, value any, when ...condition) rule {
	return edit(at, func(in object) {
		if v := in[field]; v == nil || v == "" || v == int64(0) {
			in[field] = copied(value)
		}
	}, when...)
}

// edit returns a rule that changes objects in another way.
func edit(at string, change func(in object), when ...condition) rule {
	return rule{at: at, edit: change, when: when}
}

// is is the condition that a field has a value.
func is(field string, values ...any) condition {
	return func(in object, _ int) bool {
		for _, value := range values {
			if in[field] == value {
				return true
			}
		}
		return false
	}
}

// isUnset is the condition that fields are not set.
func isUnset(fields ...string) condition {
	return func(in object, _ int) bool {
		for _, field := range fields {
			if in[field] != nil {
				return false
			}
		}
		return true
	}
}

// since is the condition that the release is 1.minor or a newer one.
func since(minor int) condition {
	return func(_ object, release int) bool { return release >= minor }
}

// under returns rules for objects at a path. The rules are for the root.
func under(path string, rules ...[]rule) (all []rule) {
	for _, some := range rules {
		for _, r := range some {
			r.at = strings.Trim(path+"."+r.at, ".")
			all = append(all, r)
		}
	}
	return all
}

// apply changes the objects at a path.
func (r *rule) apply(in object, path string, minor int) {
	if path == "" {
		for _, met := range r.when {
			if !met(in, minor) {
				return
			}
		}
		r.edit(in)
		return
	}
	name, rest, _ := strings.Cut(path, ".")
	name, isList := strings.CutSuffix(name, "[]")
	switch value := in[name].(type) {
	case object:
		if !isList {
			r.apply(value, rest, minor)
		}
	case []any:
		if isList {
			for inner := range objects(value) {
				r.apply(inner, rest, minor)
			}
		}
	}
}

// objects returns the elements of a list that are objects.
func objects(list any) func(yield func(object) bool) {
	elements, _ := list.([]any)
	return func(yield func(object) bool) {
		for _, element := range elements {
			if inner, ok := element.(object); ok && !yield(inner) {
				return
			}
		}
	}
}

// part returns a part of an object, which is added if it is not set.
func part(in object, field string) object {
	inner, ok := in[field].(object)
	if !ok {
		inner = make(object)
		in[field] = inner
	}
	return inner
}

// parse returns the kind of a name such as "apps/v1 Deployment".
func parse(name string) schema.GroupVersionKind {
	apiVersion, kind, _ := strings.Cut(name, " ")
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}
