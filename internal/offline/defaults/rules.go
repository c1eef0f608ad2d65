package defaults

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

const (
	// rulesMax is how many CEL rules of CustomResourceDefinitions are compiled in all. Each takes a millisecond and 100 KB. All
	// kinds of the Gateway API have about 300.
	rulesMax = 3000
	// rulesTimeMax is how long all rules may take in all, with their compilation. A thousand objects of the Gateway API need one
	// second. kube-apiserver also bounds the cost of the rules for each object, which does not count all that a rule can do.
	rulesTimeMax = 20 * time.Second
)

var (
	errTooManyRules = fmt.Errorf("the CustomResourceDefinitions have more than %d rules in x-kubernetes-validations: "+
		"review fewer kinds at once", rulesMax)
	errSlowRules = fmt.Errorf("the rules in x-kubernetes-validations of the CustomResourceDefinitions take longer than %s: "+
		"review fewer objects at once", rulesTimeMax)
)

// rules are the CEL rules of a CustomResourceDefinition, x-kubernetes-validations. Whoever has the turn of rulesSpent may use them.
type rules struct {
	isCompiled bool
	validator  *cel.Validator // nil if there are none
	err        error
}

// rulesSpent is what the rules of all definitions took.
type rulesSpent struct {
	turn     sync.Mutex // for one object at a time, so that nobody's time is that of waiting for others
	compiled int        // rules
	time     time.Duration
}

// mayHaveRules reports whether a schema may have rules.
func mayHaveRules(schema []byte) bool {
	return bytes.Contains(schema, []byte("x-kubernetes-validations"))
}

// structural returns the schema for packages of kube-apiserver, an empty one if the schema is not structural: kube-apiserver refuses its
// definition.
func (k *customKind) structural() *structuralschema.Structural {
	k.onceStructural.Do(func() {
		k.forUpstream = new(structuralschema.Structural)
		var props apiextensionsv1.JSONSchemaProps
		var internal apiextensions.JSONSchemaProps
		if decode(k.text, &props) != nil ||
			apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&props, &internal, nil) != nil {
			return
		}
		if converted, err := structuralschema.NewStructural(&internal); err == nil {
			k.forUpstream = converted
		}
	})
	return k.forUpstream
}

// compile compiles the rules of a schema, once.
func (r *rules) compile(schema *structuralschema.Structural, spent *rulesSpent) {
	if r.isCompiled {
		return
	}
	r.isCompiled = true
	visitor := structuralschema.Visitor{
		Structural: func(s *structuralschema.Structural) bool { spent.compiled += len(s.XValidations); return false },
		NestedValueValidation: func(v *structuralschema.NestedValueValidation) bool {
			spent.compiled += len(v.XValidations)
			return false
		},
	}
	if visitor.Visit(schema); spent.compiled > rulesMax {
		r.err = errTooManyRules
		return
	}
	r.validator = cel.NewValidator(schema, true, celconfig.PerCallLimit)
}

// brokenRules returns the rules that an object breaks, as the strategy of kube-apiserver evaluates them
// (k8s.io/apiextensions-apiserver pkg/registry/customresource). old is the object before an UPDATE, nil for none.
func (d *Defaults) brokenRules(k *customKind, custom, old object) ([]fault, error) {
	var found []fault
	err := d.spent.inTime(func(ctx context.Context) error {
		if k.rules.compile(k.structural(), &d.spent); k.rules.validator == nil {
			return k.rules.err
		}
		var before any // a nil object would not be nil
		var options []cel.Option
		if old != nil {
			before = old
			correlated := common.NewCorrelatedObject(custom, old, &model.Structural{Structural: k.structural()})
			options = append(options, cel.WithRatcheting(correlated))
		}
		errs, _ := k.rules.validator.Validate(ctx, nil, k.structural(), custom, before, celconfig.RuntimeCELCostBudget, options...)
		for _, err := range errs[:min(len(errs), refusalsMax)] {
			at := err.Field
			if err.Field == "<nil>" {
				at, err.Field = "", theObject
			}
			found = append(found, fault{path: at, message: shortened(err.Error())})
		}
		return nil
	})
	if err != nil {
		return nil, err // found may still be written
	}
	return found, nil
}

// inTime calls f, and returns an error if that takes more than what is left of rulesTimeMax. f may go on then, and is the last one: some
// functions of CEL look at no context.
func (s *rulesSpent) inTime(f func(ctx context.Context) error) (err error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	left := rulesTimeMax - s.time
	if left <= 0 {
		return errSlowRules
	}
	begun, done := time.Now(), make(chan error, 1) // before ctx, so that nothing is left when that ends
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- fmt.Errorf("its rules in x-kubernetes-validations cannot be evaluated: %v", r)
			}
		}()
		done <- f(ctx)
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
	}
	s.time += time.Since(begun)
	if ctx.Err() != nil {
		return errSlowRules
	}
	return err
}
