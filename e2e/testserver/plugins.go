package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/podspec"
	"github.com/fastadmit/fastadmit/codec"
)

// A decide is a plugin's decision on a review.
type decide func(ctx context.Context, review *codec.Review) admission.Result

func plugins() []admission.Plugin {
	return []admission.Plugin{
		plugin("Echo", echoMutating, echoValidating),
		plugin("DenyUnwanted", nil, denyUnwanted),
		plugin("DenyAttach", nil, denyAttach),
		plugin("StageOne", stage("mutation-start", "mutation-stage-1"), nil),
		plugin("StageTwo", stage("mutation-stage-1", "mutation-stage-2"), nil),
		plugin("AddInitContainer", addInitContainer, nil),
		plugin("Slow", nil, takes(3*time.Second)),
		plugin("Steady", nil, takes(200*time.Millisecond)),
		plugin("Undecided", undecided, undecided),
		plugin("Panic", nil, func(context.Context, *codec.Review) admission.Result { panic("as it is meant to") }),
		plugin("Scribble", scribble, nil),
		plugin("TurnsA", turns("a"), nil),
		plugin("TurnsB", turns("b"), nil),
	}
}

func plugin(name string, admit, validate decide) admission.Plugin {
	return admission.Plugin{
		Name: name, Summary: "for tests", OutOfTree: true,
		Rules:   []admission.Rule{admission.Any()},
		Mutates: admit != nil, Validates: validate != nil,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: admit, Validate: validate}, nil
		},
	}
}

// echoMutating reports its review in a warning, and notes the operation in the written object.
func echoMutating(ctx context.Context, review *codec.Review) admission.Result {
	operation := review.Operation()
	if (operation == codec.Create || operation == codec.Update) && review.SubResource() == "" {
		review.Object.SetString(string(operation), "metadata", "annotations", "e2e.example.com/echo")
	}
	return echo(review, "mutate")
}

func echoValidating(_ context.Context, review *codec.Review) admission.Result {
	return echo(review, "validate")
}

func echo(review *codec.Review, phase string) admission.Result {
	resource := review.Resource().Resource
	if sub := review.SubResource(); sub != "" {
		resource += "/" + sub
	}
	extra := review.UserInfo().Get("extra").JSON()
	review.Response.Warn(fmt.Sprintf("%s %s %s %s %s dryRun=%t user=%s extra=%s",
		phase, review.Operation(), resource, review.Name(), review.APIVersion(), review.DryRun(), review.Username(), extra))
	if err := review.Response.Annotate("echo", string(review.Operation())); err != nil {
		return admission.Errored(err)
	}
	return admission.Allowed()
}

// denyUnwanted denies objects that are labelled as unwanted. For those labelled to wait forever, it
// waits longer than the caller does.
func denyUnwanted(ctx context.Context, review *codec.Review) admission.Result {
	object := &review.Object
	if review.Operation() == codec.Delete {
		object = &review.OldObject
	}
	const key, unwanted = "webhook-e2e-test", "webhook-disallow"
	if object.Get("metadata", "labels", key).EqualString("wait-forever") {
		<-ctx.Done()
		time.Sleep(time.Second)
		return deny(review, "the pod response should not be sent")
	}
	for _, path := range [...]string{"labels", "annotations"} {
		if object.Get("metadata", path, key).EqualString(unwanted) {
			return deny(review, "the "+path+" contain unwanted values")
		}
	}
	if value := object.Get("data", "invalid"); value.Exists() {
		return admission.Denied(apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, review.Name(), field.ErrorList{
			field.Invalid(field.NewPath("data", "invalid"), value.String(), "is not wanted"),
		}))
	}
	if object.Get("data", key).EqualString(unwanted) {
		return deny(review, "the data contains unwanted key and value")
	}
	for container := range podspec.Containers(object.Get("spec")) {
		if container.Get("name").EqualString(unwanted) {
			return deny(review, "the pod contains unwanted container name")
		}
	}
	return admission.Allowed()
}

func denyAttach(_ context.Context, review *codec.Review) admission.Result {
	if review.Operation() == codec.Connect && review.SubResource() == "attach" {
		return deny(review, "attaching to pod 'to-be-attached-pod' is not allowed")
	}
	return admission.Allowed()
}

func deny(review *codec.Review, why string) admission.Result {
	return admission.Denied(admission.Forbidden(review, errors.New(why)))
}

// stage sets one key of an object's data if another one is set.
func stage(from, to string) decide {
	return func(_ context.Context, review *codec.Review) admission.Result {
		if review.Object.Get("data", from).EqualString("yes") {
			review.Object.SetString("yes", "data", to)
		}
		return admission.Allowed()
	}
}

func addInitContainer(_ context.Context, review *codec.Review) admission.Result {
	if !review.Object.Get("spec", "initContainers").Exists() {
		review.Object.Append(`{"name":"webhook-added-init-container","image":"webhook-added-image"}`, "spec", "initContainers")
	}
	return admission.Allowed()
}

// undecided returns no decision.
func undecided(context.Context, *codec.Review) admission.Result {
	return admission.Errored(errors.New("as it is meant to"))
}

// scribble makes an invalid edit, of a missing Value.
func scribble(_ context.Context, review *codec.Review) admission.Result {
	review.Object.Get("metadata", "nothing").SetString("gone", "state")
	return admission.Allowed()
}

// takes decides after a delay.
func takes(d time.Duration) decide {
	return func(context.Context, *codec.Review) admission.Result {
		time.Sleep(d)
		return admission.Allowed()
	}
}
