package cel

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/internal/policy/cel/calls"
	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

// A kyvernoLibrary is the value of a variable whose members are functions.
type kyvernoLibrary struct{ is *cel.Type }

var (
	jsonLibrary = &kyvernoLibrary{is: cel.OpaqueType("json.Json")}
	yamlLibrary = &kyvernoLibrary{is: cel.OpaqueType("yaml.Yaml")}
)

// dataOptions declare Kyverno's functions that read and write data, as github.com/kyverno/sdk does in
// extensions/cel/libs/json, yaml and transform. What they read is as encoding/json has it: numbers are doubles, and of
// members with the same name the last one counts.
var dataOptions = func() []cel.EnvOption {
	text, list := cel.StringType, cel.ListType(cel.DynType)
	options := []cel.EnvOption{
		ext.Encoders(), // base64.decode and base64.encode, which Kyverno has and Kubernetes has not
		cel.Variable("json", jsonLibrary.is),
		cel.Variable("yaml", yamlLibrary.is),
		cel.Function("unmarshal", cel.MemberOverload("unmarshal_string_dyn",
			[]*cel.Type{jsonLibrary.is, cel.DynType}, cel.DynType, cel.BinaryBinding(unmarshal))),
		cel.Function("marshal", cel.MemberOverload("marshal_dyn_string",
			[]*cel.Type{jsonLibrary.is, cel.DynType}, text, cel.BinaryBinding(marshal))),
		cel.Function("parse", cel.MemberOverload("parse_string_dyn",
			[]*cel.Type{yamlLibrary.is, text}, cel.DynType, cel.BinaryBinding(parse))),
	}
	for name, overload := range map[string]string{
		"listObjToMap": "list_of_object_to_map_non_prefixed", "transform.listObjToMap": "list_of_object_to_map_prefixed",
	} {
		options = append(options, cel.Function(name, cel.Overload(overload, []*cel.Type{list, list, text, text},
			cel.MapType(cel.DynType, cel.DynType), cel.FunctionBinding(listObjToMap))))
	}
	return options
}()

// dataCosts are the costs of these functions. BenchmarkKyverno has the times that they stand for: 0.1 µs for each 1.
var dataCosts = func() (all []interpreter.CostTrackerOption) {
	for overload, cost := range map[string]func(args []ref.Val, result ref.Val) uint64{
		"unmarshal_string_dyn": func(args []ref.Val, _ ref.Val) uint64 { return 6 * textCost(args[1]) },
		"marshal_dyn_string":   func(_ []ref.Val, result ref.Val) uint64 { return textCost(result) },
		"parse_string_dyn":     func(args []ref.Val, _ ref.Val) uint64 { return 40 * textCost(args[1]) },
		"x509_decode_string":   func(args []ref.Val, _ ref.Val) uint64 { return 20 * textCost(args[0]) },
		"base64_decode_string": func(args []ref.Val, _ ref.Val) uint64 { return textCost(args[0]) },
		"base64_encode_bytes":  func(_ []ref.Val, result ref.Val) uint64 { return textCost(result) },

		"list_of_object_to_map_non_prefixed": membersCost,
		"list_of_object_to_map_prefixed":     membersCost,
	} {
		all = append(all, interpreter.OverloadCostTracker(overload, func(args []ref.Val, result ref.Val) *uint64 {
			return new(1 + cost(args, result))
		}))
	}
	return all
}()

// textCost is the cost of reading a text, 0 for what cel-go refuses.
func textCost(v ref.Val) uint64 {
	text, _ := v.(types.String)
	return calls.TraversalCost(uint64(len(text)))
}

func membersCost(args []ref.Val, _ ref.Val) uint64 { return 4 * calls.Size(args[0]) }

// unmarshal is json.unmarshal(text).
func unmarshal(_, v ref.Val) ref.Val {
	text, isText := v.(types.String)
	if !isText {
		return types.NewErr("unsupported type conversion from '%s' to string", v.Type().TypeName())
	}
	var decoded any
	if err := json.Unmarshal([]byte(text), &decoded); err != nil {
		return types.WrapErr(err)
	}
	return types.DefaultTypeAdapter.NativeToValue(decoded)
}

// marshal is json.marshal(value).
func marshal(_, v ref.Val) ref.Val {
	native, err := nativeOf(v)
	if err != nil {
		return types.WrapErr(err)
	}
	text, err := json.Marshal(native)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.String(text)
}

// nativeOf returns a value as encoding/json takes it. calls.Limits has charged its memory.
func nativeOf(v ref.Val) (any, error) {
	switch v := v.(type) {
	case *view.Object, *view.List, types.Bool, types.Int, types.Uint, types.Double, types.String, types.Bytes,
		types.Duration, types.Timestamp:
		return v.Value(), nil
	case types.Null:
		return nil, nil
	case traits.Mapper:
		members := make(map[string]any)
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			name, isText := key.(types.String)
			if !isText {
				return nil, fmt.Errorf("json: got a key of type %s, want string", key.Type().TypeName())
			}
			member, err := nativeOf(v.Get(key))
			if err != nil {
				return nil, err
			}
			members[string(name)] = member
		}
		return members, nil
	case traits.Lister:
		elements := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			element, err := nativeOf(it.Next())
			if err != nil {
				return nil, err
			}
			elements = append(elements, element)
		}
		return elements, nil
	}
	return nil, fmt.Errorf("json: unsupported type: %s", v.Type().TypeName())
}

// aliasedFree is how many bytes the aliases of a YAML text may add to it, besides its own length again.
const aliasedFree = 4 << 10

// parse is yaml.parse(text).
func parse(_, v ref.Val) ref.Val {
	text, _ := v.(types.String) // declared as one
	if strings.ContainsRune(string(text), '&') && strings.ContainsRune(string(text), '*') {
		var document yaml.Node // does not copy what aliases name
		left := len(text) + aliasedFree
		if err := yaml.Unmarshal([]byte(text), &document); err != nil {
			return types.WrapErr(err)
		}
		if !expands(&document, false, &left) {
			return types.NewErr("the aliases of a YAML text of %d bytes add more than %d bytes: write the values out",
				len(text), len(text)+aliasedFree)
		}
	}
	var decoded any
	if err := sigsyaml.Unmarshal([]byte(text), &decoded); err != nil {
		return types.WrapErr(err)
	}
	return types.DefaultTypeAdapter.NativeToValue(decoded)
}

// expands subtracts the bytes that aliases add, and reports whether some are left.
func expands(node *yaml.Node, aliased bool, left *int) bool {
	if node.Kind == yaml.AliasNode {
		node, aliased = node.Alias, true
	}
	if aliased {
		*left -= len(node.Value) + len(", ")
	}
	if *left < 0 {
		return false
	}
	for _, below := range node.Content {
		if !expands(below, aliased, left) {
			return false
		}
	}
	return true
}

// listObjToMap is listObjToMap(keys, values, key, value): the member key of each object in keys, with the member value
// of the object at the same place in values.
func listObjToMap(args ...ref.Val) ref.Val {
	keys, values := args[0].(traits.Lister), args[1].(traits.Lister)
	if n, m := calls.Size(keys), calls.Size(values); n != m {
		return types.NewErr("listObjToMap must take lists of equal length. list1: %d, list2: %d", n, m)
	}
	made := make(map[string]any)
	other := values.Iterator()
	for it := keys.Iterator(); it.HasNext() == types.True; {
		key, err := memberOf(it.Next(), args[2])
		if err != nil {
			return err
		}
		name, isText := key.(types.String)
		if !isText {
			return types.NewErr("the passed key name cannot be handled as a string in the key object list")
		}
		if made[string(name)], err = memberOf(other.Next(), args[3]); err != nil {
			return err
		}
	}
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, made)
}

// memberOf returns a member of an element, null if it has none of the name.
func memberOf(element, name ref.Val) (member, err ref.Val) {
	object, isMap := element.(traits.Mapper)
	if !isMap {
		return nil, types.NewErr("listObjToMap: got an element of type %s, want a map", element.Type().TypeName())
	}
	if member, found := object.Find(name); found {
		return member, nil
	}
	return types.NullValue, nil
}

// ConvertToNative implements ref.Val.
func (l *kyvernoLibrary) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("type conversion error from '%s' to '%v'", l.is, t)
}

// ConvertToType implements ref.Val.
func (l *kyvernoLibrary) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return l.is
	}
	return types.NewErr("type conversion error from '%s' to '%s'", l.is, t)
}

// Equal implements ref.Val. An evaluation has one value of the type.
func (l *kyvernoLibrary) Equal(other ref.Val) ref.Val { return types.Bool(other.Type() == l.is) }

// Type implements ref.Val.
func (l *kyvernoLibrary) Type() ref.Type { return l.is }

// Value implements ref.Val.
func (l *kyvernoLibrary) Value() any { return l }
