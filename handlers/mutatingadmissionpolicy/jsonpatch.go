package mutatingadmissionpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"

	"github.com/fastadmit/fastadmit/diff"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
	"github.com/fastadmit/fastadmit/internal/policy/patching"
)

// applyJSONPatch behaves as upstream's patch/json_patch.go: it applies a list of JSONPatch
// values with kube-apiserver's library.
func applyJSONPatch(p *patch, value ref.Val) error {
	operations, err := operationsOf(p, value)
	if err != nil {
		return err
	}
	after, err := patching.Apply(p.ctx, operations, p.before)
	if errors.Is(err, jsonpatch.ErrTestFailed) {
		return nil // a patch with a failed test is not applied
	}
	if err != nil && p.ctx.Err() == nil {
		err = fmt.Errorf("JSON Patch: %w", err)
	}
	if err != nil {
		return err
	}
	p.after = after
	unknown, err := p.encode()
	if err == nil && len(unknown) > 0 {
		for i, field := range unknown {
			unknown[i] = fmt.Sprintf("unknown field %q", field)
		}
		err = &refusal{apierrors.NewInternalError(errors.New("strict decoding error: " + strings.Join(unknown, ", ")))}
	}
	return err
}

// operationsOf converts a list of JSONPatch values to a JSON Patch. Its operations and
// values are limited to the maximum of the answer to the review.
func operationsOf(p *patch, value ref.Val) (jsonpatch.Patch, error) {
	list, ok := value.(traits.Lister)
	if !ok {
		return nil, errors.New("type mismatch: JSONPatchType.expression should evaluate to array")
	}
	var operations jsonpatch.Patch
	size := 0
	for it := list.Iterator(); it.HasNext() == types.True; {
		element := it.Next()
		given, ok := element.(*cel.JSONPatch)
		if !ok {
			_, err := element.ConvertToNative(reflect.TypeFor[*cel.JSONPatch]())
			return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch: %w", err)
		}
		operation, n, err := operationOf(p, given)
		if err != nil {
			return nil, err
		}
		if size += n; len(operations) == diff.OperationsMax || size > diff.PatchBytesMax {
			return nil, fmt.Errorf("JSON Patch: it has more than %d operations, or values of more than %d bytes", diff.OperationsMax, diff.PatchBytesMax)
		}
		if err := p.ctx.Err(); err != nil {
			return nil, err
		}
		operations = append(operations, operation)
	}
	return operations, nil
}

// operationOf converts a JSONPatch value to an operation. size is the length of its value in
// bytes.
func operationOf(p *patch, given *cel.JSONPatch) (operation jsonpatch.Operation, size int, err error) {
	operation = jsonpatch.Operation{"op": quoted(given.Op), "path": quoted(given.Path)}
	if given.From != "" {
		operation["from"] = quoted(given.From)
	}
	if given.Val == nil {
		return operation, 0, nil
	}
	if err := p.memory.Converts(given.Val); err != nil {
		return nil, 0, err
	}
	if object, ok := given.Val.(*dynamic.ObjectVal); ok {
		if err := object.CheckTypeNamesMatchFieldPathNames(); err != nil {
			return nil, 0, fmt.Errorf("type mismatch: %w", err)
		}
	}
	const cannot = "JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w"
	converted, err := given.Val.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return nil, 0, fmt.Errorf(cannot, err)
	}
	text, err := json.Marshal(converted)
	if err != nil {
		return nil, 0, fmt.Errorf(cannot, err)
	}
	operation["value"] = new(json.RawMessage(text))
	return operation, len(text), p.memory.Keeps(len(text))
}

// quoted quotes a string as upstream does, which is not always valid JSON.
func quoted(s string) *json.RawMessage { return new(json.RawMessage(strconv.Quote(s))) }
