package main

import (
	"context"
	"fmt"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/podspec"
	"github.com/fastadmit/fastadmit/codec"
)

// privilegedContainers is the plugin of the scenario "validate". fastadmit does not have it.
func privilegedContainers() admission.Plugin {
	return admission.Plugin{
		Name: "PrivilegedContainers", Summary: "denies privileged containers",
		Rules: []admission.Rule{admission.CreateUpdate("pods")}, Validates: true,
		New: func(admission.Setup) (admission.Handler, error) { return admission.Handler{Validate: privileged}, nil },
	}
}

func privileged(_ context.Context, review *codec.Review) admission.Result {
	for c := range podspec.Containers(review.Object.Get("spec")) {
		if c.Get("securityContext", "privileged").Bool() {
			return admission.Denied(admission.Forbidden(review, fmt.Errorf("%s is privileged", c.Path())))
		}
	}
	return admission.Allowed()
}
