package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/podspec"
)

// A decide is what a plugin does to a review.
type decide func(ctx context.Context, review *codec.Review) handlers.Result

func plugins() []handlers.Plugin {
	return []handlers.Plugin{
		plugin("Echo", echoMutating, echoValidating),
		plugin("DenyUnwanted", nil, denyUnwanted),
		plugin("DenyAttach", nil, denyAttach),
		plugin("StageOne", stage("mutation-start", "mutation-stage-1"), nil),
		plugin("StageTwo", stage("mutation-stage-1", "mutation-stage-2"), nil),
		plugin("AddInitContainer", addInitContainer, nil),
		plugin("Slow", nil, takes(3*time.Second)),
		plugin("Steady", nil, takes(200*time.Millisecond)),
		plugin("Undecided", undecided, undecided),
		plugin("Panic", nil, func(context.Context, *codec.Review) handlers.Result { panic("as it is meant to") }),
		plugin("Scribble", scribble, nil),
		plugin("TurnsA", turns("a"), nil),
		plugin("TurnsB", turns("b"), nil),
	}
}

func plugin(name string, admit, validate decide) handlers.Plugin {
	return handlers.Plugin{
		Name: name, Summary: "for tests", OutOfTree: true,
		Rules:   []handlers.Rule{handlers.Any()},
		Mutates: admit != nil, Validates: validate != nil,
		New: func(handlers.Setup) (handlers.Handler, error) {
			return handlers.Handler{Admit: admit, Validate: validate}, nil
		},
	}
}

// echoMutating says what it gets, and notes the operation in what is written.
func echoMutating(ctx context.Context, review *codec.Review) handlers.Result {
	operation := review.Operation()
	if (operation == codec.Create || operation == codec.Update) && review.SubResource() == "" {
		review.Object.SetString(string(operation), "metadata", "annotations", "e2e.example.com/echo")
	}
	return echo(review, "mutate")
}

func echoValidating(_ context.Context, review *codec.Review) handlers.Result {
	return echo(review, "validate")
}

func echo(review *codec.Review, phase string) handlers.Result {
	resource := review.Resource().Resource
	if sub := review.SubResource(); sub != "" {
		resource += "/" + sub
	}
	extra := review.UserInfo().Get("extra").JSON()
	review.Response.Warn(fmt.Sprintf("%s %s %s %s %s dryRun=%t user=%s extra=%s",
		phase, review.Operation(), resource, review.Name(), review.APIVersion(), review.DryRun(), review.Username(), extra))
	if err := review.Response.Annotate("echo", string(review.Operation())); err != nil {
		return handlers.Errored(err)
	}
	return handlers.Allowed()
}

// denyUnwanted denies what says of itself that it is not wanted, and keeps
// waiting who says that they would wait forever: longer than they do.
func denyUnwanted(ctx context.Context, review *codec.Review) handlers.Result {
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
		return handlers.Denied(apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, review.Name(), field.ErrorList{
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
	return handlers.Allowed()
}

func denyAttach(_ context.Context, review *codec.Review) handlers.Result {
	if review.Operation() == codec.Connect && review.SubResource() == "attach" {
		return deny(review, "attaching to pod 'to-be-attached-pod' is not allowed")
	}
	return handlers.Allowed()
}

func deny(review *codec.Review, why string) handlers.Result {
	return handlers.Denied(handlers.Forbidden(review, errors.New(why)))
}

// stage sets one key of an object's data if another one is set.
func stage(from, to string) decide {
	return func(_ context.Context, review *codec.Review) handlers.Result {
		if review.Object.Get("data", from).EqualString("yes") {
			review.Object.SetString("yes", "data", to)
		}
		return handlers.Allowed()
	}
}

func addInitContainer(_ context.Context, review *codec.Review) handlers.Result {
	if !review.Object.Get("spec", "initContainers").Exists() {
		review.Object.Append(`{"name":"webhook-added-init-container","image":"webhook-added-image"}`, "spec", "initContainers")
	}
	return handlers.Allowed()
}

// undecided does not come to a decision.
func undecided(context.Context, *codec.Review) handlers.Result {
	return handlers.Errored(errors.New("as it is meant to"))
}

// scribble makes an edit that cannot be made: it starts at a Value that is missing.
func scribble(_ context.Context, review *codec.Review) handlers.Result {
	review.Object.Get("metadata", "nothing").SetString("gone", "state")
	return handlers.Allowed()
}

// takes decides after so long.
func takes(d time.Duration) decide {
	return func(context.Context, *codec.Review) handlers.Result {
		time.Sleep(d)
		return handlers.Allowed()
	}
}
