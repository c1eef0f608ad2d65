package defaults

import (
	"slices"
	"strconv"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/fastadmit/fastadmit/internal/fieldpath"
)

// A faultKind says whether a fault counts in an update that does not cause it (CRDValidationRatcheting).
type faultKind int

const (
	ofSchema   faultKind = iota // if the value or a value around it changes
	ofListType                  // if the object had none of its kind before
	ofMetadata                  // always
)

// ratchet returns the faults that count in an update from old.
func (d *Defaults) ratchet(k *customKind, faults []fault, custom, old object, oldSize int) ([]fault, error) {
	hadLists := false
	if isList := func(f fault) bool { return f.of == ofListType }; slices.ContainsFunc(faults, isList) {
		before, err := d.schemaFaults(k, old, oldSize)
		if err != nil {
			return nil, err
		}
		hadLists = slices.ContainsFunc(before, isList)
	}
	root := common.NewCorrelatedObject(custom, old, &model.Structural{Structural: k.structural()})
	return slices.DeleteFunc(faults, func(f fault) bool {
		return f.of == ofListType && hadLists || f.of == ofSchema && isUnchanged(root, fieldpath.Steps(f.node))
	}), nil
}

// isUnchanged reports whether a value, or one around it, is what it was before.
func isUnchanged(at *common.CorrelatedObject, steps []string) bool {
	for at != nil {
		if at.CachedDeepEqual() {
			return true
		}
		if len(steps) == 0 {
			return false
		}
		if i, err := strconv.Atoi(steps[0]); err == nil {
			at = at.Index(i)
		} else {
			at = at.Key(steps[0])
		}
		steps = steps[1:]
	}
	return false
}
