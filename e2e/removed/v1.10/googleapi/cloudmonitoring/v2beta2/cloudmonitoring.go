// Package cloudmonitoring stands for the client of a service of Google's that is gone.
package cloudmonitoring

import "net/http"

type Service struct{ Timeseries *TimeseriesService }
type TimeseriesService struct{}

type TimeseriesListCall struct {
	Metric, OldestTime, YoungestTime string
	LabelList                        []string
}
type ListTimeseriesResponse struct {
	Timeseries    []*Timeseries
	NextPageToken string
}
type Timeseries struct{ Points []*Point }
type Point struct{ DoubleValue *float64 }

// Answer is the answer of the service.
var Answer func(call *TimeseriesListCall) (*ListTimeseriesResponse, error)

func New(*http.Client) (*Service, error) { return &Service{Timeseries: &TimeseriesService{}}, nil }

func (*TimeseriesService) List(_, metric, youngest string, _ any) *TimeseriesListCall {
	return &TimeseriesListCall{Metric: metric, YoungestTime: youngest}
}
func (c *TimeseriesListCall) Oldest(t string) *TimeseriesListCall   { c.OldestTime = t; return c }
func (c *TimeseriesListCall) Aggregator(string) *TimeseriesListCall { return c }
func (c *TimeseriesListCall) Window(string) *TimeseriesListCall     { return c }
func (c *TimeseriesListCall) Labels(l string) *TimeseriesListCall {
	c.LabelList = append(c.LabelList, l)
	return c
}
func (c *TimeseriesListCall) PageToken(string) *TimeseriesListCall { return c }
func (c *TimeseriesListCall) Do() (*ListTimeseriesResponse, error) { return Answer(c) }
