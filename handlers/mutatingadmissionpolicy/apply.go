package mutatingadmissionpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// applyConfiguration behaves as upstream's patch/smd.go: it merges an Object value into the
// object, according to the schema of its kind.
func applyConfiguration(p *patch, given ref.Val) error {
	object, ok := given.(*dynamic.ObjectVal)
	if !ok {
		return fmt.Errorf("unsupported return type from ApplyConfiguration expression: %v", given.Type())
	}
	if err := p.memory.Converts(object); err != nil {
		return err
	}
	if err := object.CheckTypeNamesMatchFieldPathNames(); err != nil {
		return fmt.Errorf("type mismatch: %w", err)
	}
	configuration, ok := object.Value().(map[string]any)
	if !ok {
		return fmt.Errorf("invalid return type: %T", given)
	}
	configuration["apiVersion"] = apiVersionOf(p.kind)
	configuration["kind"] = p.kind.Kind
	if err := p.merge(configuration); err != nil {
		return fmt.Errorf("error applying patch: %w", err)
	}
	_, err := p.encode() // unknown fields need no check: merge refuses them
	return err
}

func (p *patch) merge(configuration map[string]any) error {
	kind, err := p.typeOf()
	if err != nil {
		return fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	applied, err := kind.FromUnstructured(configuration)
	if err != nil {
		return fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	if atomic := atomics(nil, applied.Schema(), applied.TypeRef(), applied.AsValue()); len(atomic) > 0 {
		slices.Sort(atomic)
		return fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %v", strings.Join(atomic, ", "))
	}
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(p.before, &content); err != nil {
		return fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	live, err := kind.FromUnstructured(content, typed.AllowDuplicates)
	if err != nil {
		return fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	merged, err := live.Merge(applied)
	if err != nil {
		return fmt.Errorf("failed to merge patch: %w", err)
	}
	was, now := differing(content, merged.AsValue().Unstructured())
	before, err := json.Marshal(was) // only members that differ: diff.Change does not touch others
	after, afterErr := json.Marshal(now)
	p.before, p.after = before, after
	return errors.Join(err, afterErr)
}

// differing returns only the members that differ between two objects. Nearly all members are equal
// and share their maps and slices, because merging reuses them, so reflect.DeepEqual is fast.
func differing(before, after any) (was, now any) {
	old, isObject := before.(map[string]any)
	merged, isStill := after.(map[string]any)
	if !isObject || !isStill {
		return before, after
	}
	olds, news := make(map[string]any), make(map[string]any)
	for name, member := range old {
		now, kept := merged[name]
		switch {
		case !kept:
			olds[name] = member
		case !reflect.DeepEqual(member, now):
			olds[name], news[name] = differing(member, now)
		}
	}
	for name, member := range merged {
		if _, known := old[name]; !known {
			news[name] = member
		}
	}
	return olds, news
}

// atomics returns the paths of atomic values that a configuration sets. They are not
// allowed, because setting one field of them would remove all others.
func atomics(path []fieldpath.PathElement, s *schema.Schema, of schema.TypeRef, v value.Value) (paths []string) {
	known, ok := s.Resolve(of)
	if !ok {
		return nil
	}
	if v.IsMap() && known.Map != nil {
		if known.Map.ElementRelationship == schema.Atomic {
			paths = append(paths, shown(path))
		}
		v.AsMap().Iterate(func(name string, member value.Value) bool {
			if field, ok := known.FindField(name); ok {
				paths = append(paths, atomics(append(path, fieldpath.PathElement{FieldName: &name}), s, field.Type, member)...)
			}
			return true
		})
	}
	if v.IsList() && known.List != nil {
		if known.List.ElementRelationship == schema.Atomic {
			paths = append(paths, shown(path))
		}
		list := v.AsList()
		for i := range list.Length() {
			paths = append(paths, atomics(append(path, fieldpath.PathElement{Index: &i}), s, known.List.ElementType, list.At(i))...)
		}
	}
	return paths
}

func shown(path []fieldpath.PathElement) string {
	var text strings.Builder
	for _, element := range path {
		text.WriteString(element.String())
	}
	return text.String()
}
