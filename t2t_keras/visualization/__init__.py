"""Pictures and pages for people: attention, curves, and a page to type into."""
