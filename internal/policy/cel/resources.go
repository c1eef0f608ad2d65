package cel

import (
	"context"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel/calls"
	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

const (
	// listedMax and listedBytesMax are how many objects one call of resource.List may return, and how long they may
	// be together. A list is copied for each evaluation that asks for it, in some milliseconds if it has this size.
	// An evaluation has memory for three of them (calls.BytesMax).
	listedMax      = 10_000
	listedBytesMax = 16 << 20

	// resourceName is the name of Kyverno's variable.
	resourceName = "resource"
	// bytesOfCost are how many bytes of objects cost 1, in addition to 1 for each object: a cost of 1 is 0.1 µs, in
	// which that many bytes are copied.
	bytesOfCost = 1 << 10
)

// Readable is JSON text that an Object of the caller reads.
type Readable interface {
	// Read resets into to the text and returns its value, which is valid until into is reset.
	Read(into *codec.Object) codec.Value
}

// A Resource is the arguments apiVersion and resource of Kyverno's functions, such as v1 and pods.
type Resource struct{ APIVersion, Resource string }

// Resources gives access to the objects that a policy can read.
type Resources interface {
	// Get returns an object. It returns nil if the object, its namespace or its kind does not exist.
	Get(ctx context.Context, of Resource, namespace, name string) (Readable, error)
	// List returns the objects of a namespace that have the labels, or of all if namespace is empty. kind is that of
	// the objects.
	List(ctx context.Context, of Resource, namespace string, labels map[string]string) (kind string, all []Readable, err error)
}

// resourceType is the type of the variable resource.
var resourceType = cel.OpaqueType("resource.Context")

// resourceOptions declare the variable and its functions, as github.com/kyverno/sdk does in
// extensions/cel/libs/resource. The names in small letters are those of Kyverno 1.18. Results are dyn, so that
// they can be compared with null.
var resourceOptions = func() []cel.EnvOption {
	text := cel.StringType
	options := []cel.EnvOption{cel.Variable(resourceName, resourceType)}
	for _, name := range []string{"Get", "get"} {
		options = append(options, cel.Function(name, cel.MemberOverload("resource_"+name,
			[]*cel.Type{resourceType, text, text, text, text}, cel.DynType, cel.FunctionBinding(getResource))))
	}
	for _, name := range []string{"List", "list"} {
		options = append(options, cel.Function(name,
			cel.MemberOverload("resource_"+name,
				[]*cel.Type{resourceType, text, text, text}, cel.DynType, cel.FunctionBinding(listResources)),
			cel.MemberOverload("resource_"+name+"_labels",
				[]*cel.Type{resourceType, text, text, text, cel.MapType(text, text)}, cel.DynType, cel.FunctionBinding(listResources))))
	}
	return options
}()

// optionsOf returns the options of a program for an expression.
func optionsOf(env *cel.Env, checked *cel.Ast, v admission.Version) []cel.ProgramOption {
	var costs []interpreter.CostTrackerOption
	if env.HasFunction("Get") { // Declarations.Kyverno
		for _, overload := range []string{"Get", "get", "List", "list", "List_labels", "list_labels"} {
			costs = append(costs, interpreter.OverloadCostTracker("resource_"+overload, func(args []ref.Val, _ ref.Val) *uint64 {
				return new(args[0].(*resourceVal).cost)
			}))
		}
		costs = append(append(costs, hashCosts...), dataCosts...)
	}
	return append(calls.Options(env, checked, v), cel.CostTrackerOptions(costs...))
}

// A resourceVal is the value of the variable resource in an evaluation.
type resourceVal struct {
	kyvernoLibrary
	of   *Evaluation
	from Resources
	cost uint64 // of the last call
}

// resourceOf returns the value of the variable. There is none for a policy that can read no objects.
func resourceOf(e *Evaluation) (any, bool) {
	if e.Cluster == nil {
		return nil, false
	}
	from := e.Cluster.Resources()
	return &resourceVal{kyvernoLibrary: kyvernoLibrary{is: resourceType}, of: e, from: from}, from != nil
}

// getResource is resource.Get(apiVersion, resource, namespace, name).
func getResource(args ...ref.Val) ref.Val {
	r, of := resourceArgs(args)
	found, err := r.from.Get(r.of.ctx, of, textAt(args, 3), textAt(args, 4))
	if err != nil {
		return types.NewErr("failed to get resource: %v", err)
	}
	if found == nil {
		return types.NullValue
	}
	return r.value(nil, []Readable{found}, nil)
}

// listResources is resource.List(apiVersion, resource, namespace), and the same with labels.
func listResources(args ...ref.Val) ref.Val {
	r, of := resourceArgs(args)
	var labels map[string]string
	if len(args) > 4 {
		var err error
		if labels, err = labelsOf(args[4]); err != nil {
			return types.NewErr("failed to list resource: %v", err)
		}
	}
	kind, all, err := r.from.List(r.of.ctx, of, textAt(args, 3), labels)
	if err == nil && len(all) > listedMax {
		err = fmt.Errorf("there are %d objects, and a list may have %d: ask for those of a namespace, or with labels", len(all), listedMax)
	}
	if err != nil {
		return types.NewErr("failed to list resource: %v", err)
	}
	start := []byte(`{"apiVersion":`)
	start = append(codec.AppendString(start, of.APIVersion), `,"kind":`...)
	start = append(codec.AppendString(start, kind+"List"), `,"metadata":{},"items":[`...)
	return r.value(start, all, []byte("]}"))
}

// resourceArgs returns the arguments that all functions have.
func resourceArgs(args []ref.Val) (*resourceVal, Resource) {
	r := args[0].(*resourceVal)
	r.cost = 1
	return r, Resource{APIVersion: textAt(args, 1), Resource: textAt(args, 2)}
}

// textAt returns an argument whose type is declared as string.
func textAt(args []ref.Val, i int) string { return string(args[i].(types.String)) }

// labelsOf returns a map of CEL that is declared as one of strings; the values of an untyped one may be others.
func labelsOf(v ref.Val) (map[string]string, error) {
	labels := make(map[string]string)
	given := v.(traits.Mapper)
	for it := given.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, isText := key.(types.String)
		value, isTextToo := given.Get(key).(types.String)
		if !isText || !isTextToo {
			return nil, fmt.Errorf("labels: got %v: %v, want texts", key, given.Get(key))
		}
		labels[string(name)] = string(value)
	}
	return labels, nil
}

// value returns a value of copies of all objects, with commas between them, and of what is before and after them.
func (r *resourceVal) value(before []byte, all []Readable, after []byte) ref.Val {
	limits, size := &r.of.limits, len(before)+len(after)
	var object codec.Object
	for _, one := range all {
		if limits.IsInterrupted() {
			return types.NewErr("operation interrupted")
		}
		length := len(one.Read(&object).JSON())
		if length > codec.StringMax { // codec would not read the longest strings that it may have
			return types.NewErr("failed to get resource: an object has %d bytes, the maximum is %d", length, codec.StringMax)
		}
		if size += length + len(","); size > listedBytesMax {
			return types.NewErr("failed to list resource: the objects have more than %d bytes: "+
				"ask for those of a namespace, or with labels", listedBytesMax)
		}
	}
	r.cost = uint64(len(all) + size/bytesOfCost + 1)
	if !limits.Take(size) {
		return types.NewErr("the objects take too much memory")
	}
	text := append(make([]byte, 0, size), before...)
	for i, one := range all {
		if i > 0 {
			text = append(text, ',')
		}
		text = one.Read(&object).AppendJSON(text)
	}
	copied := new(codec.Object)
	copied.Reset(append(text, after...))
	indexed := 0
	return view.Indexed(copied.Root(), func(bytes int) bool {
		more := bytes - indexed
		indexed = bytes
		return limits.Take(more)
	})
}
