package alike

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/fastadmit/fastadmit/internal/fieldpath"
)

// A place is a struct on a path, and the path to it.
type place struct {
	path string
	t    reflect.Type
}

// placesOf returns the structs on a path, the outermost first, and the last step.
func placesOf(t reflect.Type, path string) (places []place, name string) {
	at := ""
	for steps := fieldpath.Steps(path); len(steps) > 0; {
		switch t.Kind() {
		case reflect.Pointer:
			t = t.Elem()
			continue
		case reflect.Slice, reflect.Map:
			t, at = t.Elem(), at+"["+steps[0]+"]"
		case reflect.Struct:
			places = append(places, place{at, t})
			_, fields := Fields(t)
			if t = fields[steps[0]]; t == nil {
				if len(steps) > 1 {
					return nil, ""
				}
				return places, steps[0]
			}
			at = below(at, steps[0])
		default:
			return nil, ""
		}
		steps = steps[1:]
	}
	return nil, ""
}

// elsewhere returns the path of the field that whoever wrote a field in the last of places may have meant, "" for none: it
// has the same name and is in metadata, around the place, or below it.
func elsewhere(places []place, name string) string {
	for i, at := range slices.Backward(places) {
		_, fields := Fields(at.t)
		if fields[name] != nil && i < len(places)-1 && !strings.HasPrefix(places[i+1].path, below(at.path, name)) {
			return below(at.path, name)
		}
		if metadata := fields["metadata"]; metadata != nil && metadata.Kind() == reflect.Struct {
			if _, inMetadata := Fields(metadata); inMetadata[name] != nil {
				return below(at.path, "metadata."+name)
			}
		}
	}
	last := places[len(places)-1]
	if path := fieldsBelow(last.t)[name]; path != "" {
		return below(last.path, path)
	}
	return ""
}

func below(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

const depthMax = 3 // from the spec of a Deployment to the containers of its template

var fieldsBelowOf sync.Map // the maps that fieldsBelow returns, by type

// fieldsBelow returns the paths of the fields that are below a struct, by their names. If several have a name, it is the
// highest one, or the one in a struct that must be there: the image of containers, not of initContainers. Otherwise there is none.
func fieldsBelow(t reflect.Type) map[string]string {
	if paths, ok := fieldsBelowOf.Load(t); ok {
		return paths.(map[string]string) //nolint:forcetypeassert // it has no others
	}
	paths := make(map[string]string)
	for level, depth := []place{{"", t}}, 0; depth < depthMax; depth++ {
		var next []place
		found := make(map[string][]string)
		required := make(map[string][]string)
		for _, above := range level {
			for _, inner := range structsOf(above) {
				next = append(next, inner.place)
				names, _ := Fields(inner.t)
				for _, name := range names {
					if path := below(inner.path, name); inner.required {
						required[name] = append(required[name], path)
					} else {
						found[name] = append(found[name], path)
					}
				}
			}
		}
		for _, candidates := range []map[string][]string{required, found} {
			for name, all := range candidates {
				if _, ok := paths[name]; ok {
					continue
				}
				paths[name] = ""
				if len(all) == 1 {
					paths[name] = all[0]
				}
			}
		}
		level = next
	}
	fieldsBelowOf.Store(t, paths)
	return paths
}

type innerStruct struct {
	place
	required bool
}

// structsOf returns the structs that fields of a struct have or list, without metadata and status.
func structsOf(at place) (inner []innerStruct) {
	for field := range at.t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && field.Anonymous && field.Type.Kind() == reflect.Struct {
			inner = append(inner, structsOf(place{at.path, field.Type})...)
			continue
		}
		t, path := field.Type, below(at.path, name)
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			if t.Kind() == reflect.Slice {
				path += "[]"
			}
			t = t.Elem()
		}
		if t.Kind() == reflect.Struct && !slices.Contains([]string{"", "-", "metadata", "status"}, name) {
			inner = append(inner, innerStruct{place{path, t}, !strings.Contains(options, "omitempty")})
		}
	}
	return inner
}
