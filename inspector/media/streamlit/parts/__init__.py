"""Parts of a page that know no page and no panel."""
