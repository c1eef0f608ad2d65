package defaults

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
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

// rules are the CEL rules of a CustomResourceDefinition, x-kubernetes-validations.
type rules struct {
	once      sync.Once
	validator *cel.Validator // nil if there are none
	err       error
}

// hasRules reports whether the schema may have rules.
func (k *customKind) hasRules() bool {
	return bytes.Contains(k.text, []byte("x-kubernetes-validations"))
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

// compile compiles the rules of a schema. total is how many were compiled before.
func (r *rules) compile(schema *structuralschema.Structural, total *atomic.Int64) {
	count := 0
	visitor := structuralschema.Visitor{
		Structural:            func(s *structuralschema.Structural) bool { count += len(s.XValidations); return false },
		NestedValueValidation: func(v *structuralschema.NestedValueValidation) bool { count += len(v.XValidations); return false },
	}
	if visitor.Visit(schema); total.Add(int64(count)) > rulesMax {
		r.err = errTooManyRules
		return
	}
	r.validator = cel.NewValidator(schema, true, celconfig.PerCallLimit)
}

// brokenRules returns the rules that an object breaks, as the strategy of kube-apiserver evaluates them
// (k8s.io/apiextensions-apiserver pkg/registry/customresource). old is the object before an UPDATE, nil for none.
func (d *Defaults) brokenRules(k *customKind, custom, old object) ([]fault, error) {
	var found []fault
	err := d.inRulesTime(func(ctx context.Context) error {
		k.rules.once.Do(func() { k.rules.compile(k.structural(), &d.rulesCompiled) })
		if k.rules.validator == nil {
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

// inRulesTime calls f, and returns an error if that takes more than what is left of rulesTimeMax. f may go on then: some functions
// of CEL look at no context.
func (d *Defaults) inRulesTime(f func(ctx context.Context) error) (err error) {
	d.rulesTurn.Lock() // so that nobody's time is that of waiting for others
	defer d.rulesTurn.Unlock()
	left := rulesTimeMax - time.Duration(d.rulesTime.Load())
	if left <= 0 {
		return errSlowRules
	}
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	begun, done := time.Now(), make(chan error, 1)
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
	d.rulesTime.Add(int64(time.Since(begun)))
	if ctx.Err() != nil {
		return errSlowRules
	}
	return err
}
