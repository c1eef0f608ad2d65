package main

import (
	"context"
	"fmt"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/podspec"
)

// privilegedContainers is the plugin of the work "validate", which is not in the
// table of fastadmit.
func privilegedContainers() handlers.Plugin {
	return handlers.Plugin{
		Name: "PrivilegedContainers", Summary: "denies privileged containers",
		Rules: []handlers.Rule{handlers.CreateUpdate("pods")}, Validates: true,
		New: func(handlers.Setup) (handlers.Handler, error) { return handlers.Handler{Validate: privileged}, nil },
	}
}

func privileged(_ context.Context, review *codec.Review) handlers.Result {
	for c := range podspec.Containers(review.Object.Get("spec")) {
		if c.Get("securityContext", "privileged").Bool() {
			return handlers.Denied(handlers.Forbidden(review, fmt.Errorf("%s is privileged", c.Path())))
		}
	}
	return handlers.Allowed()
}
