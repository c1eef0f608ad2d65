package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/imagereview"
)

// imagesName is the endpoint for API servers that have the plugin ImagePolicyWebhook.
const imagesName = "imagereview"

// images is what answers ImageReviews.
type images struct {
	policy   *imagereview.Policy
	endpoint *endpoint // without plugins
}

// UseImages makes the server answer ImageReviews by the policy, and none if it is nil.
func (s *Server) UseImages(policy *imagereview.Policy) {
	if policy == nil {
		s.images.Store(nil)
		return
	}
	s.images.Store(&images{policy, &endpoint{
		name: imagesName, phase: admission.Validate, chain: new(admission.Chain), metrics: s.metrics.endpoint(imagesName, admission.Validate),
	}})
}

// reviewImages answers the request if it is one for ImageReviews.
func (s *Server) reviewImages(ctx *fasthttp.RequestCtx, c *conn, start time.Time) bool {
	i := s.images.Load()
	if i == nil || string(s.callers.withoutToken(ctx.Path())) != "/"+imagesName {
		return false
	}
	if s.accept(ctx, i.endpoint) {
		s.answerImages(ctx, c, i, call{endpoint: i.endpoint, start: start, operation: codec.OtherOperation.Index()})
	}
	return true
}

// answerImages answers an ImageReview, as review does an AdmissionReview.
func (s *Server) answerImages(ctx *fasthttp.RequestCtx, c *conn, i *images, call call) {
	body := ctx.PostBody()
	s.metrics.requestBytes.Add(len(body))
	callCtx := s.acquireContext(call.start, ctx.QueryArgs(), nil, body)
	defer callCtx.release()
	call.deadline = callCtx.deadline
	if !s.begin(ctx, c, call, callCtx) {
		return
	}
	answer, err := i.policy.Review(callCtx, body)
	if !s.end(c) {
		return // it took so long that it was answered without
	}
	outcome := admission.OutcomeAllowed
	switch tooLarge := (*codec.SizeError)(nil); {
	case errors.Is(err, context.DeadlineExceeded):
		s.refuse(ctx, fasthttp.StatusInternalServerError, "InternalError", "ImageReview: no time left: "+err.Error())
		i.endpoint.metrics.observe(call.operation, admission.OutcomeErrored, call.start, call.deadline)
		return
	case errors.As(err, &tooLarge):
		s.refuse(ctx, fasthttp.StatusRequestEntityTooLarge, "RequestEntityTooLarge", err.Error())
		return
	case err != nil:
		s.refuse(ctx, fasthttp.StatusBadRequest, "BadRequest", err.Error())
		return
	case !answer.Allowed:
		outcome = admission.OutcomeDenied
	}
	ctx.Response.Header.SetContentTypeBytes(contentTypeJSON)
	if !s.send(ctx, answer.AppendJSON(nil), &callCtx.memory) {
		return
	}
	c.admit()
	i.endpoint.metrics.observe(call.operation, outcome, call.start, call.deadline)
	if outcome == admission.OutcomeDenied {
		s.log.LogAttrs(ctx, slog.LevelInfo, "denied", slog.String("endpoint", imagesName),
			slog.String("namespace", answer.Namespace), slog.String("rule", answer.Rule), slog.String("message", answer.Reason))
	}
}

// imagesPath says how ImageReviews are asked for, for the message about an unknown
// path.
func (s *Server) imagesPath() string {
	if s.images.Load() == nil {
		return ""
	}
	return fmt.Sprintf(", or /%s", imagesName)
}
